/** Marks of a timetable: firings that would overlap are drawn as one. */

export interface Mark {
  /** The first and the last firing that it stands for. */
  from: number;
  to: number;
  count: number;
}

/** In how many parts a lane is told apart. */
const RESOLUTION = 240;

/** The marks of one schedule's firings, on a lane from `from` to `to`. */
export function mergeFirings(firings: readonly number[], from: number, to: number): Mark[] {
  const minGap = Math.max(1, (to - from) / RESOLUTION);
  const marks: Mark[] = [];
  for (const at of firings) {
    const last = marks.at(-1);
    if (last && at - last.to < minGap) {
      last.to = at;
      last.count += 1;
    } else marks.push({ from: at, to: at, count: 1 });
  }
  return marks;
}
