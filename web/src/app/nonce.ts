/** Nonce that the content security policy requires for style elements of this page. */
export const nonce: string = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
