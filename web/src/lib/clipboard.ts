/** Clipboard access, also for pages over HTTP by host name, where browsers offer only `execCommand`. */

/** Copies a text. Returns false if the browser refuses. Must be called from a click or key handler. */
export async function copyText(text: string): Promise<boolean> {
  // Undefined in insecure contexts, despite its type.
  const clipboard = navigator.clipboard as Clipboard | undefined;
  if (!clipboard) return copySelection(text);
  return clipboard.writeText(text).then(
    () => true,
    () => copySelection(text),
  );
}

/** Copies a text by selecting it in a hidden field. */
function copySelection(text: string): boolean {
  const field = document.createElement("textarea");
  field.value = text;
  field.readOnly = true;
  field.style.position = "fixed";
  field.style.opacity = "0";
  const { activeElement } = document;
  // Inside an open dialog, because the dialog would take the focus back from an outside element.
  (activeElement?.closest("[role=dialog]") ?? document.body).append(field);
  try {
    field.select();
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    field.remove();
    if (activeElement instanceof HTMLElement) activeElement.focus();
  }
}
