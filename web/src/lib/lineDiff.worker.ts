/** Compares logs in a worker, so that long logs do not block the page. */

import { diffLines, type DiffOptions } from "./lineDiff";

onmessage = ({ data }: MessageEvent<{ a: string[]; b: string[]; options: DiffOptions }>) => {
  postMessage(diffLines(data.a, data.b, data.options));
};
