import "@fontsource-variable/inter/wght.css";
import "@fontsource-variable/jetbrains-mono/wght.css";
import "@mantine/core/styles.css";
import "@mantine/notifications/styles.css";
import "./app/tokens.css";
import "./app/global.css";
import "./i18n";

import { createRoot } from "react-dom/client";

import { beginSession } from "./api/auth";
import { App } from "./app/App";
import { nonce } from "./app/nonce";

// The library that locks scrolling behind a dialog writes a style element of its own.
(globalThis as { __webpack_nonce__?: string }).__webpack_nonce__ = nonce;

const root = document.getElementById("root");
if (root) void beginSession().then(() => createRoot(root).render(<App />));
