/** Filters of the list of jobs: as text that users type, in the URL, and as a query of the API. */

import type { JobsSearch } from "../app/router";
import type { paths } from "../api/schema";

type ListQuery = NonNullable<paths["/api/v1/jobs"]["get"]["parameters"]["query"]>;

/** A filter as parameters of the API, without those of a page. */
export type JobsQuery = Omit<ListQuery, "limit" | "cursor" | "count">;

/** Filter keys, in display order. */
export const KEYS = [
  "status",
  "queue",
  "namespace",
  "owner",
  "text",
  "name",
  "workflow",
  "label",
  "worker",
  "schedule",
  "backfill",
  "run",
  "service",
  "since",
  "after",
  "before",
] as const;
export type FilterKey = (typeof KEYS)[number];

export interface Token {
  key: FilterKey;
  value: string;
}

export function tokensOf(search: JobsSearch): Token[] {
  return KEYS.flatMap((key) => [search[key] ?? []].flat().map((value) => ({ key, value })));
}

/** Filter key of an id, by its prefix. */
const ID_PREFIXES: Record<string, FilterKey> = {
  wkr: "worker",
  sch: "schedule",
  bkf: "backfill",
  run: "run",
  svc: "service",
};

/** Parses a filter such as `status:failed` or `team=pay`; a single word finds it in the name. */
export function parseToken(text: string): Token | null {
  const word = text.trim();
  if (word === "") return null;
  const match = /^([a-z]+):(.*)$/.exec(word);
  const key = KEYS.find((known) => known === match?.[1]);
  if (match && key) {
    const value = (match[2] ?? "").trim();
    return value === "" ? null : { key, value };
  }
  const kind = ID_PREFIXES[/^([a-z]{3})_/.exec(word)?.[1] ?? ""];
  if (kind) return { key: kind, value: word };
  return word.includes("=") ? { key: "label", value: word } : { key: "text", value: word };
}

/** Adds a filter. Statuses and labels accumulate; other keys have one value. */
export function withToken(search: JobsSearch, { key, value }: Token): JobsSearch {
  if (key === "status") {
    const known = search.status?.split(",") ?? [];
    return { ...search, status: [...new Set([...known, ...value.split(",")])].join(",") };
  }
  if (key === "label") return { ...search, label: [...new Set([...(search.label ?? []), value])] };
  if (key === "since") return { ...search, since: value, after: undefined };
  if (key === "after") return { ...search, after: value, since: undefined };
  return { ...search, [key]: value };
}

export function withoutToken(search: JobsSearch, { key, value }: Token): JobsSearch {
  if (key === "label") {
    const label = search.label?.filter((each) => each !== value);
    return { ...search, label: label?.length ? label : undefined };
  }
  return { ...search, [key]: undefined };
}

export function isSameSearch(a: JobsSearch, b: JobsSearch): boolean {
  const filterKeys = (search: JobsSearch) => tokensOf(search).map(({ key, value }) => `${key}:${value}`);
  return filterKeys(a).join("\n") === filterKeys(b).join("\n");
}

const SPANS_MS: Record<string, number> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Returns the start of a span such as `24h` that ends at `now`; undefined if it is invalid. */
export function sinceTime(span: string, now: number): string | undefined {
  const match = /^(\d{1,4})([mhd])$/.exec(span);
  const unit = SPANS_MS[match?.[2] ?? ""];
  return match && unit ? new Date(now - Number(match[1]) * unit).toISOString() : undefined;
}

/** Returns the API query for a filter. */
export function toJobsQuery(search: JobsSearch, now: number): JobsQuery {
  return {
    status: search.status,
    owner: search.owner,
    namespace: search.namespace,
    queue: search.queue,
    text: search.text,
    name: search.name,
    workflow: search.workflow,
    label: search.label,
    worker_id: search.worker,
    schedule: search.schedule,
    backfill: search.backfill,
    run: search.run,
    service: search.service,
    created_after: search.after ?? (search.since ? sinceTime(search.since, now) : undefined),
    created_before: search.before,
  };
}
