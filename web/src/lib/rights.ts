/**
 * Rights of the caller. The server decides about each request; the dashboard offers only what the server allows.
 *
 * A right names its namespaces: `*` for all namespaces and the cluster itself, a prefix such as `team/*` for the
 * namespaces below `team`, or the name of a namespace. Until the rights are known, everything is offered.
 */

import type { Me, Resource, Right, Verb } from "../api/schema";
import { ALL_NAMESPACES } from "./namespaces";

export type Caller = Pick<Me, "rights">;
/** An action on a kind of resource. */
export type Permission = readonly [verb: Verb, resource: Resource];

const DEFAULT_NAMESPACE = "default";
/** Resources of the lists that show one namespace. */
const LISTED = new Set<Resource>([
  "jobs",
  "schedules",
  "workflows",
  "runs",
  "services",
  "artifacts",
  "alerts",
]);

/** Returns whether a pattern of a right covers a namespace, or all namespaces of another pattern. */
export function covers(pattern: string, namespace: string): boolean {
  if (pattern === ALL_NAMESPACES || pattern === namespace) return true;
  const prefix = pattern.endsWith("/*") ? pattern.slice(0, -1) : null;
  return prefix !== null && namespace.length > prefix.length && namespace.startsWith(prefix);
}

/** Returns the namespaces in which the caller may do something. */
export function namespacesOf(caller: Caller | undefined, verb: Verb, resource: Resource): readonly string[] {
  if (!caller) return [ALL_NAMESPACES];
  const isOf = (right: Right) => right.verb === verb && right.resource === resource;
  return caller.rights.filter(isOf).flatMap(({ namespaces }) => namespaces);
}

/** Returns whether the caller may do something in a namespace; by default in all, and with the cluster itself. */
export function can(
  caller: Caller | undefined,
  verb: Verb,
  resource: Resource,
  namespace: string = ALL_NAMESPACES,
): boolean {
  return namespacesOf(caller, verb, resource).some((pattern) => covers(pattern, namespace));
}

/** Returns whether the caller may do something in at least one namespace. */
export function canSomewhere(caller: Caller | undefined, verb: Verb, resource: Resource): boolean {
  return namespacesOf(caller, verb, resource).length > 0;
}

/** Returns whether the caller has no right at all: its account has no role, or its token excludes all of them. */
export function hasNoRights(caller: Caller | undefined): boolean {
  return caller?.rights.length === 0;
}

/** Returns the namespaces and prefixes whose objects the caller may list, sorted; null if it may list all. */
export function listedNamespaces(caller: Caller | undefined): string[] | null {
  const readable = caller?.rights.filter(({ verb, resource }) => verb === "read" && LISTED.has(resource));
  const patterns = new Set(readable?.flatMap(({ namespaces }) => namespaces));
  if (!readable || patterns.has(ALL_NAMESPACES)) return null;
  return [...patterns].sort((a, b) => a.localeCompare(b));
}

/** Returns whether a pattern is the name of a single namespace. */
export function isSingle(pattern: string): boolean {
  return !pattern.endsWith("*");
}

/** Returns the namespace of a new object: `default` if the caller may do this there, else the first known one. */
export function namespaceForNew(
  caller: Caller | undefined,
  verb: Verb,
  resource: Resource,
): string | undefined {
  if (can(caller, verb, resource, DEFAULT_NAMESPACE)) return DEFAULT_NAMESPACE;
  return namespacesOf(caller, verb, resource).find(isSingle);
}

/** Returns a sample in YAML whose first line is the name, with the namespace of a new object unless it is `default`. */
export function sampleFor(
  caller: Caller | undefined,
  sample: string,
  ...[verb, resource]: Permission
): string {
  const namespace = namespaceForNew(caller, verb, resource);
  if (namespace === undefined || namespace === DEFAULT_NAMESPACE) return sample;
  return sample.replace("\n", `\nnamespace: ${namespace}\n`);
}

/** Returns whether the caller had a right before that it has no longer. */
export function hasLostRights(before: Caller | undefined, after: Caller): boolean {
  if (!before) return false;
  return before.rights.some(({ verb, resource, namespaces }) =>
    namespaces.some((namespace) => !can(after, verb, resource, namespace)),
  );
}

/** Permission that a page needs in at least one namespace, by the start of its address. Other pages need none. */
const PAGES: ReadonlyArray<readonly [path: string, ...Permission]> = [
  ["/jobs", "read", "jobs"],
  ["/failures", "read", "jobs"],
  ["/compare", "read", "jobs"],
  ["/submit", "create", "jobs"],
  ["/schedules", "read", "schedules"],
  ["/schedules/new", "change", "schedules"],
  ["/calendars", "read", "calendars"],
  ["/calendars/new", "change", "calendars"],
  ["/workflows", "read", "workflows"],
  ["/workflows/new", "change", "workflows"],
  ["/runs", "read", "runs"],
  ["/services", "read", "services"],
  ["/services/new", "change", "services"],
  ["/workers", "read", "workers"],
  ["/servers", "read", "server"],
  ["/queues", "read", "queues"],
  ["/namespaces", "read", "namespaces"],
  ["/artifacts", "read", "artifacts"],
  ["/secrets", "read", "secrets"],
  ["/events", "read", "events"],
  ["/alerts", "read", "alerts"],
  ["/access", "read", "access"],
  ["/access/tokens", "read", "access"],
  ["/access/audit", "read", "audit"],
  ["/access/roles/new", "create", "access"],
];

/** Pages that need the permission in the whole cluster. */
const CLUSTER_PAGES: ReadonlySet<string> = new Set(["/access/tokens", "/access/roles/new"]);

/** Pages for callers without any right. */
const OPEN_PAGES: ReadonlySet<string> = new Set(["/settings", "/tokens"]);

/** Reason why a page cannot be shown: the caller has no right at all, or lacks that of the page. */
export type Denial = "noRole" | Permission;

/** Returns why the caller may not open a page; null if it may. */
export function pageDenial(caller: Caller | undefined, path: string): Denial | null {
  if (hasNoRights(caller)) return OPEN_PAGES.has(path) ? null : "noRole";
  // A form has no pages below it: `new` is also a valid namespace of a service.
  const isUnder = (page: string) => path === page || (!page.endsWith("/new") && path.startsWith(`${page}/`));
  const needed = PAGES.filter(([page]) => isUnder(page)).at(-1);
  if (!needed) return null;
  const [page, verb, resource] = needed;
  const isAllowed = CLUSTER_PAGES.has(page)
    ? can(caller, verb, resource)
    : canSomewhere(caller, verb, resource);
  return isAllowed ? null : [verb, resource];
}
