/** Permissions of roles as a table, and filters of the lists of accounts and tokens. */

import type { Account, Resource, RoleRule, TokenKind, TokenStatus, Verb } from "../api/schema";

/** Resources, in the order of the table of permissions. */
export const RESOURCES = [
  "jobs",
  "executions",
  "logs",
  "events",
  "schedules",
  "workflows",
  "runs",
  "services",
  "calendars",
  "artifacts",
  "secrets",
  "queues",
  "workers",
  "server",
  "namespaces",
  "access",
  "audit",
  "alerts",
] as const satisfies readonly Resource[];

/** Verbs of roles. The verb `work` is only for worker tokens. */
export const VERBS = ["read", "operate", "create", "change", "delete"] as const satisfies readonly Verb[];

export type RoleVerb = (typeof VERBS)[number];
/** A verb and a resource, separated by a space. */
export type PermissionKey = `${Verb} ${Resource}`;

export function permissionsOf(rules: readonly RoleRule[]): ReadonlySet<PermissionKey> {
  const pairs = rules.flatMap(({ verbs, resources }) =>
    resources.flatMap((resource) => verbs.map((verb): PermissionKey => `${verb} ${resource}`)),
  );
  return new Set(pairs);
}

/** Returns rules that give exactly these permissions: one for all resources with the same verbs. */
export function rulesOf(permissions: ReadonlySet<PermissionKey>): RoleRule[] {
  const rules: RoleRule[] = [];
  for (const resource of RESOURCES) {
    const verbs = VERBS.filter((verb) => permissions.has(`${verb} ${resource}`));
    if (verbs.length === 0) continue;
    const same = rules.find((rule) => rule.verbs.join() === verbs.join());
    if (same) same.resources.push(resource);
    else rules.push({ verbs, resources: [resource] });
  }
  return rules;
}

export const ACCOUNT_KINDS = ["user", "service"] as const satisfies readonly Account["kind"][];
/** Filters of the list of accounts, in its address. */
export interface AccountsSearch {
  text?: string;
  kind?: string;
  /** `disabled` for disabled accounts only. */
  state?: string;
}

export function filterAccounts(accounts: readonly Account[], search: AccountsSearch): Account[] {
  const { kind, state } = search;
  return accounts.filter(
    (account) => (kind === undefined || account.kind === kind) && (state !== "disabled" || account.disabled),
  );
}

export const TOKEN_KINDS = ["user", "service", "worker", "admin"] as const satisfies readonly TokenKind[];
export const TOKEN_STATUSES = ["active", "expired", "revoked"] as const satisfies readonly TokenStatus[];

/** Filters of lists of tokens, in their addresses. */
export interface TokensSearch {
  kind?: string;
  /** Statuses, separated by commas; active tokens by default. */
  status?: string;
}

export function tokenStatusesOf({ status }: TokensSearch): TokenStatus[] {
  const chosen = TOKEN_STATUSES.filter((each) => status?.split(",").includes(each));
  return chosen.length > 0 ? chosen : ["active"];
}

/** Returns the search with a status added or removed; the default is not in the address. */
export function withTokenStatus<S extends TokensSearch>(search: S, status: TokenStatus): S {
  const shown = tokenStatusesOf(search);
  const next = TOKEN_STATUSES.filter((each) => (each === status) !== shown.includes(each));
  const isDefault = next.length === 0 || next.join() === "active";
  return { ...search, status: isDefault ? undefined : next.join(",") };
}

/** Lifetimes to choose from, in days. Tokens of accounts expire after at most 366 days. */
export const LIFETIME_DAYS = [1, 7, 30, 90, 180, 366] as const;
export const DEFAULT_LIFETIME_DAYS = 90;

/** Lifetimes of invitations to choose from, in hours. */
export const INVITATION_HOURS = [4, 24, 72, 168, 720] as const;
export const INVITATION_HOURS_DEFAULT = 72;

/** Returns the link of an invitation. Browsers do not send the part after `#`, so it is in no log of addresses. */
export function invitationLink(origin: string, secret: string): string {
  return `${origin}/#invite=${secret}`;
}

/** Returns a lifetime as a duration of the API. */
export function lifetime(days: number): string {
  return `${24 * days}h`;
}
