// Jobs at an even pace, each with the time at which it was to be added.

/** Milliseconds of a clock that no wall clock moves. */
function now() {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** How many milliseconds have passed since then. */
export function since(at) {
  return now() - at;
}

/** Adds so many a second for so many seconds, whether those before were taken or not. */
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
