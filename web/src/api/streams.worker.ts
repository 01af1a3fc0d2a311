/** The shared worker that has a browser's streams open: {@link Hub} with a port for each tab. */

import { Hub, PING_INTERVAL_MS, type HubRequest } from "./hub";

const hub = new Hub();
setInterval(() => hub.ping(), PING_INTERVAL_MS);

addEventListener("connect", (event) => {
  const port = (event as MessageEvent).ports[0];
  if (!port) return;
  const page = hub.connect((message) => port.postMessage(message));
  port.onmessage = ({ data }: MessageEvent<HubRequest>) => page.receive(data);
  // Where the browser tells it: a tab that crashed has not said goodbye.
  port.addEventListener("close", page.disconnect);
});
