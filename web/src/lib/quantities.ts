/** Durations, CPU and byte quantities: parsing and formatting. */

import type { Usage } from "../api/schema";

const UNITS_MS: Record<string, number> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};

/** Parses a duration such as `1h30m` into milliseconds; null if it is invalid. */
export function parseDuration(text: string): number | null {
  const parts = [...text.trim().matchAll(/(\d+(?:\.\d+)?)(ns|us|µs|ms|[smhdw])/g)];
  if (parts.length === 0 || parts.map((p) => p[0]).join("") !== text.trim()) return null;
  return parts.reduce((sum, [, amount, unit]) => sum + Number(amount) * (UNITS_MS[unit ?? ""] ?? 0), 0);
}

/** Returns the items of a list such as `1m, 5m 10m` as written, also invalid ones: the server reports errors. */
export function splitList(text: string): string[] {
  return text.split(/[\s,;，、；]+/).filter((each) => each !== "");
}

/** Formats a duration in at most two units: `850 ms`, `12 s`, `3m 20s`, `2h 5m`, `4d 3h`. */
export function formatDuration(ms: number): string {
  if (ms < 1) return "0 ms";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`;
  const s = Math.round(ms / 1_000);
  if (s < 60) return `${s} s`;
  const two = (big: number, bigUnit: string, small: number, smallUnit: string) =>
    small === 0 ? `${big}${bigUnit}` : `${big}${bigUnit} ${small}${smallUnit}`;
  if (s < 3_600) return two(Math.floor(s / 60), "m", s % 60, "s");
  if (s < 86_400) return two(Math.floor(s / 3_600), "h", Math.floor((s % 3_600) / 60), "m");
  return two(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3_600), "h");
}

/** Parses CPU cores of `500m`, `2` or `0.5`. */
export function parseCpu(amount: string | number): number {
  if (typeof amount === "number") return amount;
  return amount.endsWith("m") ? Number(amount.slice(0, -1)) / 1_000 : Number(amount);
}

export function formatCpu(cores: number): string {
  return cores >= 10 ? cores.toFixed(0) : String(Math.round(cores * 100) / 100);
}

const BYTE_UNITS: Record<string, number> = {
  "": 1,
  B: 1,
  K: 1e3,
  KB: 1e3,
  kB: 1e3,
  M: 1e6,
  MB: 1e6,
  G: 1e9,
  GB: 1e9,
  T: 1e12,
  TB: 1e12,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
};

/** Parses bytes of `256MiB`, `2GB` or a number; NaN if it is invalid. */
export function parseBytes(amount: string | number): number {
  if (typeof amount === "number") return amount;
  const match = /^([\d.]+)\s*([A-Za-z]*)$/.exec(amount.trim());
  return match ? Number(match[1]) * (BYTE_UNITS[match[2] ?? ""] ?? 1) : Number.NaN;
}

export function formatBytes(bytes: number): string {
  let amount = bytes;
  let unit = "B";
  for (const next of ["KiB", "MiB", "GiB", "TiB"]) {
    if (amount < 1_024) break;
    amount /= 1_024;
    unit = next;
  }
  const digits = unit === "B" || amount >= 100 ? 0 : amount >= 10 ? 1 : 2;
  return `${Number(amount.toFixed(digits))} ${unit}`;
}

/** Returns the peak memory of an execution in bytes; null if it is unknown, which the API reports as 0. */
export function peakMemory(usage: Pick<Usage, "peak_memory_bytes"> | null | undefined): number | null {
  return usage?.peak_memory_bytes || null;
}
