/** Dialogs that do not belong to a page: those of commands of the palette. */

import { type ReactNode, useSyncExternalStore } from "react";

type Render = (close: () => void) => ReactNode;

let current: Render | null = null;
const listeners = new Set<() => void>();

function set(render: Render | null): void {
  current = render;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Opens a dialog in the frame; `render` receives the function that closes it. */
export function openDialog(render: Render): void {
  set(render);
}

/** Closes the dialog, which the next user must not see. */
export function closeDialog(): void {
  set(null);
}

export function DialogHost() {
  const render = useSyncExternalStore(subscribe, () => current);
  return render?.(closeDialog);
}
