/** The shared worker that owns the browser's streams: a {@link Hub} with one port per tab. */

import { Hub, PING_INTERVAL_MS, type HubRequest } from "./hub";

const hub = new Hub();
setInterval(() => hub.ping(), PING_INTERVAL_MS);

addEventListener("connect", (event) => {
  const port = (event as MessageEvent).ports[0];
  if (!port) return;
  const page = hub.connect((message) => port.postMessage(message));
  port.onmessage = ({ data }: MessageEvent<HubRequest>) => page.receive(data);
  // Not all browsers fire `close`; a crashed tab sends no message.
  port.addEventListener("close", page.disconnect);
});
