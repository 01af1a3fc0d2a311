import "@fontsource-variable/inter/wght.css";
import "@fontsource-variable/jetbrains-mono/wght.css";
import "@mantine/core/styles.css";
import "@mantine/notifications/styles.css";
import "./app/tokens.css";
import "./app/global.css";
import "./i18n";

import { createRoot } from "react-dom/client";

import { initSession, sessionNumber } from "./api/auth";
import { feed } from "./api/feed";
import { watchVisibility } from "./api/streams";
import { App } from "./app/App";
import { ChunkLoadError } from "./app/lazyPage";
import { nonce } from "./app/nonce";

// The library that locks scrolling behind a dialog writes a style element of its own.
(globalThis as { __webpack_nonce__?: string }).__webpack_nonce__ = nonce;

/** Errors that a page shows instead of itself; that a file could not be had, the browser says by itself. */
function onCaughtError(error: unknown): void {
  if (!(error instanceof ChunkLoadError)) reportError(error);
}

watchVisibility();
const root = document.getElementById("root");
if (root)
  void initSession().then(() => {
    // Before anything is read: what is read before the feed is there must be read again.
    if (sessionNumber() > 0) feed.start();
    createRoot(root, { onCaughtError }).render(<App />);
  });
