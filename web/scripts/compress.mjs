// Writes `.br` and `.gz` files next to each compressible file of the build, so that the server only selects one.
// `index.html` is not compressed: the server inserts values into it.

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const folder = new URL("../dist/assets/", import.meta.url).pathname;
let firstLoad = 0;
const entry = readFileSync(new URL("../dist/index.html", import.meta.url), "utf8");

for (const name of readdirSync(folder)) {
  if (!/\.(js|css|svg|json)$/.test(name)) continue;
  const bytes = readFileSync(join(folder, name));
  const br = brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
  writeFileSync(join(folder, `${name}.br`), br);
  writeFileSync(join(folder, `${name}.gz`), gzipSync(bytes, { level: 9 }));
  if (entry.includes(name)) firstLoad += br.length;
}

const FIRST_LOAD_MAX = 600_000;
console.log(`first load: ${(firstLoad / 1000).toFixed(0)} kB compressed`);
if (firstLoad > FIRST_LOAD_MAX) {
  console.error(`error: the first load is larger than ${FIRST_LOAD_MAX / 1000} kB: load a page lazily`);
  process.exit(1);
}
