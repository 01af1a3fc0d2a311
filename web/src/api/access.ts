/** Requests for accounts, logins, roles, role bindings and tokens. There are no events for them. */

import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { unwrap, api } from "./client";
import { queryClient, refreshMe } from "./queries";
import type {
  AccountKind,
  Binding,
  CreatedInvitation,
  CreatedToken,
  CreateInvitation,
  CreateToken,
  RoleRule,
  StartedTotp,
  TokenStatus,
} from "./schema";

const ACCESS = "access";
/** Refetch interval: another administrator may have changed something. */
const REFETCH_MS = 15_000;

export const accountsQuery = (text?: string) =>
  queryOptions({
    queryKey: [ACCESS, "accounts", text ?? ""],
    queryFn: () => unwrap(api.GET("/api/v1/accounts", { params: { query: { text } } })),
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });

export const accountQuery = (name: string) =>
  queryOptions({
    queryKey: [ACCESS, "account", name],
    queryFn: () => unwrap(api.GET("/api/v1/accounts/{name}", { params: { path: { name } } })),
    refetchInterval: REFETCH_MS,
  });

export const bindingsQuery = (filter: { account?: string; role?: string }) =>
  queryOptions({
    queryKey: [ACCESS, "bindings", filter],
    queryFn: () => unwrap(api.GET("/api/v1/bindings", { params: { query: filter } })),
    refetchInterval: REFETCH_MS,
  });

export const rolesQuery = queryOptions({
  queryKey: [ACCESS, "roles"],
  queryFn: () => unwrap(api.GET("/api/v1/roles")),
  refetchInterval: REFETCH_MS,
});

export const roleQuery = (name: string) =>
  queryOptions({
    queryKey: [ACCESS, "role", name],
    queryFn: () => unwrap(api.GET("/api/v1/roles/{name}", { params: { path: { name } } })),
    refetchInterval: REFETCH_MS,
  });

export interface TokensFilter {
  /** Name of the bearer. */
  name?: string;
  /** Kinds of bearers, separated by commas; all by default. */
  kind?: string;
  statuses: readonly TokenStatus[];
}

export const tokensQuery = ({ name, kind, statuses }: TokensFilter) =>
  queryOptions({
    queryKey: [ACCESS, "tokens", name, kind, statuses.join(",")],
    queryFn: () => {
      const query = { name, kind, status: statuses.join(",") };
      return unwrap(api.GET("/api/v1/tokens", { params: { query } }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });

function invalidate(): void {
  void queryClient.invalidateQueries({ queryKey: [ACCESS] });
}

export async function createAccount(name: string, kind: AccountKind, title: string): Promise<void> {
  await unwrap(api.POST("/api/v1/accounts", { body: { name, kind, title: title || undefined } }));
  invalidate();
}

/** Changes the given fields; an empty title removes it. */
export async function changeAccount(
  name: string,
  body: { title?: string; disabled?: boolean },
): Promise<void> {
  await unwrap(api.PATCH("/api/v1/accounts/{name}", { params: { path: { name } }, body }));
  invalidate();
}

export async function deleteAccount(name: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/accounts/{name}", { params: { path: { name } } }));
  invalidate();
}

/** Creates an invitation. Only this response has its secret. */
export async function inviteAccount(name: string, body: CreateInvitation): Promise<CreatedInvitation> {
  const params = { path: { name } };
  const created = await unwrap(api.POST("/api/v1/accounts/{name}/invitation", { params, body }));
  invalidate();
  return created;
}

export async function revokeInvitation(name: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/accounts/{name}/invitation", { params: { path: { name } } }));
  invalidate();
}

/** Unlinks an account from its person at the OpenID provider. */
export async function unlinkAccount(name: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/accounts/{name}/oidc", { params: { path: { name } } }));
  invalidate();
}

/** Ends the sessions of an account, except the one of this browser. */
export async function endSessions(name: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/accounts/{name}/sessions", { params: { path: { name } } }));
  invalidate();
}

export async function changePassword(current: string, next: string): Promise<void> {
  await unwrap(api.PUT("/api/v1/me/password", { body: { current, new: next } }));
  invalidate();
  void refreshMe();
}

/** Starts to turn on the second factor of the caller. Only this response has the secret. */
export async function startTotp(password: string): Promise<StartedTotp> {
  return unwrap(api.POST("/api/v1/me/totp", { body: { password } }));
}

/** Turns on the second factor with a first code, and returns the recovery codes. */
export async function putTotp(setup: string, code: string): Promise<string[]> {
  const { codes } = await unwrap(api.PUT("/api/v1/me/totp", { body: { setup, code } }));
  invalidate();
  void refreshMe();
  return codes;
}

/** Turns off the second factor of the caller. */
export async function disableTotp(password: string): Promise<void> {
  await unwrap(api.POST("/api/v1/me/totp/disable", { body: { password } }));
  invalidate();
  void refreshMe();
}

/** Deletes the second factor of an account. */
export async function resetTotp(name: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/accounts/{name}/totp", { params: { path: { name } } }));
  invalidate();
}

type BindingKey = Pick<Binding, "role" | "account" | "group" | "namespace">;

export async function bindRole(body: BindingKey): Promise<void> {
  await unwrap(api.PUT("/api/v1/bindings", { body }));
  invalidate();
}

export async function unbindRole({ role, account, group, namespace }: BindingKey): Promise<void> {
  const query = { role, account: account ?? undefined, group: group ?? undefined, namespace };
  await unwrap(api.DELETE("/api/v1/bindings", { params: { query } }));
  invalidate();
}

export async function saveRole(name: string, description: string, rules: RoleRule[]): Promise<void> {
  const body = { description: description || undefined, rules };
  await unwrap(api.PUT("/api/v1/roles/{name}", { params: { path: { name } }, body }));
  invalidate();
}

export async function deleteRole(name: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/roles/{name}", { params: { path: { name } } }));
  invalidate();
}

/** Creates a token. Only this response has its secret. */
export async function createToken(body: CreateToken): Promise<CreatedToken> {
  const created = await unwrap(api.POST("/api/v1/tokens", { body }));
  invalidate();
  return created;
}

export async function revokeToken(id: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/tokens/{id}", { params: { path: { id } } }));
  invalidate();
}
