/** Marks of a timetable: overlapping firings are merged. */

export interface Mark {
  /** First and last firing of the mark, in ms since the epoch. */
  from: number;
  to: number;
  count: number;
}

/** Number of distinguishable positions on a lane. */
const RESOLUTION = 240;

/** Returns the marks of a schedule's firings on a lane from `from` to `to`. */
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
