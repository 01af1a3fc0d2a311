/** The word with which this page's own style elements are let through by its content policy. */
export const nonce: string = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
