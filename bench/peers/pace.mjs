// Adds jobs at a constant rate, each with the time at which it is added.

/** Returns milliseconds of a monotonic clock. */
function now() {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** Returns the milliseconds since then. */
export function since(at) {
  return now() - at;
}

/** Adds `rate` jobs per second for `seconds` seconds, without waiting for earlier ones. */
export async function paced(rate, seconds, add) {
  const added = [];
  const begun = now();
  for (let number = 0; number < rate * seconds; number += 1) {
    const wait = begun + (number * 1_000) / rate - now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    added.push(add(now()));
  }
  await Promise.all(added);
}
