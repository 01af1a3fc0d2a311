/** Formatting and parsing of times, in the zone that the user chose. */

/** `local`, `UTC`, or an IANA name. */
export type Zone = string;

/** A zone, or `schedule`: on the pages of a schedule its own zone, on other pages `local`. */
export type ZoneChoice = string;

/** Returns the zone of a choice; `local` if this browser does not know it. `schedule` is null on other pages. */
export function chosenZone(choice: ZoneChoice, schedule: Zone | null): Zone {
  const zone = choice === "schedule" ? (schedule ?? "local") : choice;
  return zone === "local" ? zone : supportedZone(zone, "local");
}

export function zoneName(zone: Zone): string {
  return zone === "local" ? Intl.DateTimeFormat().resolvedOptions().timeZone : zone;
}

/** Returns the current UTC offset of a zone, such as `GMT+8`. */
export function zoneOffset(zone: Zone, locale: string): string {
  return (
    partsOf(format(locale, zone, "offset", { timeZoneName: "shortOffset" }), new Date()).timeZoneName ?? ""
  );
}

/** Returns `zone`, or `other` if this browser does not know it. */
export function supportedZone(zone: Zone, other: Zone): Zone {
  try {
    new Intl.DateTimeFormat("en", { timeZone: zone });
    return zone;
  } catch {
    return other;
  }
}

const formats = new Map<string, Intl.DateTimeFormat>();

function format(locale: string, zone: Zone, kind: string, options: Intl.DateTimeFormatOptions) {
  const key = `${locale} ${zone} ${kind}`;
  let found = formats.get(key);
  if (!found) {
    found = new Intl.DateTimeFormat(locale, { ...options, timeZone: zoneName(zone), hourCycle: "h23" });
    formats.set(key, found);
  }
  return found;
}

/** Formats date and time to the second, with the zone. */
export function formatExact(at: string | number | Date, locale: string, zone: Zone): string {
  const isChinese = locale.startsWith("zh");
  const shown = format(locale, zone, "exact", {
    year: "numeric",
    month: isChinese ? "2-digit" : "short",
    day: isChinese ? "2-digit" : "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    timeZoneName: "short",
  });
  if (!isChinese) return shown.format(new Date(at));
  // `2026-03-29 08:30:05 GMT+8`: the usual form in Chinese tables, half as long as the locale's own.
  const { year, month, day, hour, minute, second, timeZoneName } = partsOf(shown, new Date(at));
  return `${year}-${month}-${day} ${hour}:${minute}:${second} ${timeZoneName}`;
}

function partsOf(format: Intl.DateTimeFormat, at: Date): Record<string, string> {
  return Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, value]));
}

/** Formats a time for tables: the time of day if it is today, else the day and the time. */
export function formatShort(at: string | number | Date, locale: string, zone: Zone, now: number): string {
  const day = format(locale, zone, "day", { year: "numeric", month: "numeric", day: "numeric" });
  const date = new Date(at);
  if (day.format(date) === day.format(new Date(now))) return formatSecond(at, locale, zone);
  const full = format(locale, zone, "short", {
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
  });
  return full.format(date);
}

/** Formats the time of day to the second. */
export function formatSecond(at: string | number | Date, locale: string, zone: Zone): string {
  const time = format(locale, zone, "time", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return time.format(new Date(at));
}

/** Formats the time of day to the millisecond, for logs. */
export function formatClock(at: string | number | Date, locale: string, zone: Zone): string {
  return format(locale, zone, "clock", {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
  }).format(new Date(at));
}

/** Formats the time of day to the minute, for axes. */
export function formatMinute(at: number, locale: string, zone: Zone): string {
  return format(locale, zone, "minute", { hour: "2-digit", minute: "2-digit" }).format(new Date(at));
}

/** Formats month and day, for axes: `11/23`. */
export function formatMonthDay(at: number, locale: string, zone: Zone): string {
  const shown = format(locale, zone, "month-day", { month: "numeric", day: "numeric" });
  const { month, day } = partsOf(shown, new Date(at));
  return `${month}/${day}`;
}

const STEPS: Array<[Intl.RelativeTimeFormatUnit, number]> = [
  ["second", 1_000],
  ["minute", 60_000],
  ["hour", 3_600_000],
  ["day", 86_400_000],
  ["week", 604_800_000],
  ["month", 2_629_800_000],
  ["year", 31_557_600_000],
];

function relativeFormat(locale: string, numeric: "auto" | "always"): Intl.RelativeTimeFormat {
  return new Intl.RelativeTimeFormat(locale, { numeric, style: "narrow" });
}

/** Formats a time relative to now: `3m ago`, `in 2h`. */
export function formatRelative(at: string | number | Date, locale: string, now: number): string {
  const ms = new Date(at).getTime() - now;
  const size = Math.abs(ms);
  if (size < 1_500) return relativeFormat(locale, "auto").format(0, "second");
  let step = STEPS[0]!;
  for (const next of STEPS) if (size >= next[1]) step = next;
  const text = relativeFormat(locale, "always").format(Math.trunc(ms / step[1]), step[0]);
  // A space between a number and a Chinese word, as in the other texts.
  return text.replace(/(\d)(?=\p{Script=Han})/gu, "$1 ");
}

/** Formats the day with its weekday, for axes: `Mon 11/23`. */
export function formatWeekday(at: number, locale: string, zone: Zone): string {
  const shown = format(locale, zone, "weekday", { weekday: "short", month: "numeric", day: "numeric" });
  const { weekday, month, day } = partsOf(shown, new Date(at));
  return `${weekday} ${month}/${day}`;
}

/** Formats a calendar day, `2026-11-23`, with its weekday. */
export function formatDay(day: string, locale: string): string {
  const at = new Date(`${day}T00:00:00Z`);
  const name = format(locale, "UTC", "name", { weekday: "short" }).format(at);
  if (locale.startsWith("zh")) return `${day} ${name}`;
  const date = format(locale, "UTC", "day-name", { year: "numeric", month: "short", day: "numeric" });
  return `${name}, ${date.format(at)}`;
}

const HOUR_MS = 3_600_000;

/** Returns the UTC offset of a zone at a time, in milliseconds. */
function offset(at: number, zone: Zone): number {
  const parts = format("en", zone, "parts", {
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  }).formatToParts(at);
  const part = (type: string) => Number(parts.find((each) => each.type === type)?.value ?? 0);
  const wall = Date.UTC(
    part("year"),
    part("month") - 1,
    part("day"),
    part("hour"),
    part("minute"),
    part("second"),
  );
  return wall - Math.floor(at / 1_000) * 1_000;
}

/**
 * Returns the times between `from` and `to` (exclusive) at which the local time is a full hour divisible by `every`.
 */
export function clockHours(from: number, to: number, every: number, zone: Zone): number[] {
  const found: number[] = [];
  // UTC offsets are multiples of a quarter of an hour.
  const step = HOUR_MS / 4;
  for (let at = Math.ceil(from / step) * step; at < to; at += step) {
    const wall = at + offset(at, zone);
    if (wall % (every * HOUR_MS) === 0 && at > from) found.push(at);
  }
  return found;
}

/** Returns the times between `from` and `to` (exclusive) at which a local day starts. */
export function dayStarts(from: number, to: number, zone: Zone): number[] {
  return clockHours(from, to, 24, zone);
}

/** Parses a local time such as `2026-11-21T09:00`; the earlier one if it is ambiguous. */
export function parseWallTime(wall: string, zone: Zone): number {
  const asUtc = Date.parse(`${wall}Z`);
  const before = asUtc - offset(asUtc - 12 * HOUR_MS, zone);
  const after = asUtc - offset(asUtc + 12 * HOUR_MS, zone);
  const shows = (at: number) => at + offset(at, zone) === asUtc;
  return shows(before) ? before : shows(after) ? after : before;
}

/** Formats a local time as a `datetime-local` input expects it, to the minute or to the second. */
export function toWallTime(at: number, zone: Zone, to: "minute" | "second" = "minute"): string {
  return new Date(at + offset(at, zone)).toISOString().slice(0, to === "minute" ? 16 : 19);
}

/** Formats a time in several zones, one per line; equal texts once. */
export function inZones(at: string, locale: string, zones: readonly Zone[]): string {
  const texts = zones.map((zone) =>
    formatExact(at, locale, zone === "local" ? zone : supportedZone(zone, "local")),
  );
  return [...new Set(texts)].join("\n");
}
