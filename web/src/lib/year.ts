/**
 * A year as twelve months of weeks, Monday first. Days are strings such as `2026-10-01`, so time zones do not affect
 * them.
 */

export type Day = string;

export interface Month {
  /** 1 to 12. */
  number: number;
  /** Rows of seven days; null outside of the month. */
  weeks: Array<Array<Day | null>>;
}

export function monthsOf(year: number): Month[] {
  return Array.from({ length: 12 }, (_, index) => {
    const first = new Date(Date.UTC(year, index, 1));
    const length = new Date(Date.UTC(year, index + 1, 0)).getUTCDate();
    const blank = (first.getUTCDay() + 6) % 7;
    const cells = Array.from({ length: Math.ceil((blank + length) / 7) * 7 }, (_, at) => {
      const day = at - blank + 1;
      return day >= 1 && day <= length ? dayText(year, index + 1, day) : null;
    });
    const weeks = Array.from({ length: cells.length / 7 }, (_, week) => cells.slice(week * 7, week * 7 + 7));
    return { number: index + 1, weeks };
  });
}

function dayText(year: number, month: number, day: number): Day {
  const two = (number: number) => String(number).padStart(2, "0");
  return `${year}-${two(month)}-${two(day)}`;
}
