/** The clipboard, also for pages over HTTP by a host name, to which browsers offer only the older way to copy. */

/** Copies a text; false if the browser refuses. To be called while a click or a key is handled. */
export async function copyText(text: string): Promise<boolean> {
  // Absent in pages that are not secure, whatever the type says.
  const clipboard = navigator.clipboard as Clipboard | undefined;
  if (!clipboard) return copySelection(text);
  return clipboard.writeText(text).then(
    () => true,
    () => copySelection(text),
  );
}

/** Copies what a hidden field has selected. */
function copySelection(text: string): boolean {
  const field = document.createElement("textarea");
  field.value = text;
  field.readOnly = true;
  field.style.position = "fixed";
  field.style.opacity = "0";
  const { activeElement } = document;
  // Inside an open dialog, which would take the focus back from an element outside.
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
