import "@fontsource-variable/inter/wght.css";
import "@fontsource-variable/jetbrains-mono/wght.css";
import "@mantine/core/styles.css";
import "@mantine/notifications/styles.css";
import "./app/tokens.css";
import "./app/global.css";
import "./i18n";

import { createRoot } from "react-dom/client";

import { initialCaller, initSession, sessionNumber } from "./api/auth";
import { feed } from "./api/feed";
import { watchVisibility } from "./api/streams";
import { App } from "./app/App";
import { ChunkLoadError } from "./app/lazyPage";
import { nonce } from "./app/nonce";
import { canSomewhere } from "./lib/rights";

// The library that locks scrolling behind a dialog inserts its own style element, which needs the CSP nonce.
(globalThis as { __webpack_nonce__?: string }).__webpack_nonce__ = nonce;

/**
 * Reports errors that a page's error boundary caught. `ChunkLoadError` is skipped: the browser reports the failed
 * download itself.
 */
function onCaughtError(error: unknown): void {
  if (!(error instanceof ChunkLoadError)) reportError(error);
}

watchVisibility();
const root = document.getElementById("root");
if (root)
  void initSession().then(() => {
    // Start the feed before the first queries: data that is read earlier must be read again once the feed is open.
    if (sessionNumber() > 0 && canSomewhere(initialCaller(), "read", "events")) feed.start();
    createRoot(root, { onCaughtError }).render(<App />);
  });
