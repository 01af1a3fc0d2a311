/** Permissions of roles, and filters of accounts and tokens. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import type { Account } from "../api/schema";
import {
  filterAccounts,
  lifetime,
  permissionsOf,
  RESOURCES,
  rulesOf,
  TOKEN_KINDS,
  TOKEN_STATUSES,
  tokenStatusesOf,
  VERBS,
  withTokenStatus,
} from "./access";

const { schemas } = (
  JSON.parse(readFileSync(join(import.meta.dirname, "../../../docs/openapi.json"), "utf8")) as {
    components: { schemas: Record<string, { enum?: string[] }> };
  }
).components;

test("the table has every resource and every verb of a role, and the filters every kind and status", () => {
  const sorted = (names: readonly string[] | undefined) => [...(names ?? [])].sort();
  expect(sorted(RESOURCES)).toEqual(sorted(schemas.Resource?.enum));
  expect(sorted([...VERBS, "work"])).toEqual(sorted(schemas.Verb?.enum));
  expect(sorted(TOKEN_KINDS)).toEqual(sorted(schemas.TokenKind?.enum));
  expect(sorted(TOKEN_STATUSES)).toEqual(sorted(schemas.TokenStatus?.enum));
});

test("rules and permissions are converted into each other", () => {
  const rules = [
    { verbs: ["operate", "read"], resources: ["runs", "jobs"] },
    { verbs: ["read"], resources: ["logs", "jobs"] },
  ] as const;
  const permissions = permissionsOf(
    rules.map(({ verbs, resources }) => ({ verbs: [...verbs], resources: [...resources] })),
  );
  expect([...permissions].sort()).toEqual([
    "operate jobs",
    "operate runs",
    "read jobs",
    "read logs",
    "read runs",
  ]);
  expect(rulesOf(permissions)).toEqual([
    { verbs: ["read", "operate"], resources: ["jobs", "runs"] },
    { verbs: ["read"], resources: ["logs"] },
  ]);
  expect(permissionsOf(rulesOf(permissions))).toEqual(permissions);
  expect(rulesOf(new Set())).toEqual([]);
});

test("accounts are filtered by kind and state", () => {
  const account = (name: string, kind: Account["kind"], disabled = false) =>
    ({ name, kind, disabled, roles: [] as Account["roles"] }) as Account;
  const all = [account("ann", "user"), account("bob", "user", true), account("ci", "service")];
  const names = (search: Parameters<typeof filterAccounts>[1]) =>
    filterAccounts(all, search).map(({ name }) => name);
  expect(names({})).toEqual(["ann", "bob", "ci"]);
  expect(names({ kind: "service" })).toEqual(["ci"]);
  expect(names({ kind: "user", state: "disabled" })).toEqual(["bob"]);
});

test("a list of tokens shows the active ones by default, and keeps the default out of the address", () => {
  expect(tokenStatusesOf({})).toEqual(["active"]);
  expect(tokenStatusesOf({ status: "unknown" })).toEqual(["active"]);
  expect(tokenStatusesOf({ status: "revoked,active" })).toEqual(["active", "revoked"]);
  expect(withTokenStatus({ kind: "admin" }, "revoked")).toEqual({ kind: "admin", status: "active,revoked" });
  expect(withTokenStatus({ status: "active,revoked" }, "revoked")).toEqual({ status: undefined });
  expect(withTokenStatus({ status: "active,revoked" }, "active")).toEqual({ status: "revoked" });
  expect(withTokenStatus({}, "active")).toEqual({ status: undefined });
});

test("a lifetime is a duration of the API", () => {
  expect(lifetime(90)).toBe("2160h");
});
