/** Why a login at the OpenID provider failed, and what the user can do about it. */

import type { TFunction } from "i18next";

import type english from "../i18n/en.json";

type Reason = keyof typeof english.oidcFailure;

/** Reasons of the server. A test compares them with the API. */
export const OIDC_FAILURES = [
  "access_denied",
  "expired",
  "provider_unavailable",
  "provider_refused",
  "invalid_response",
  "not_allowed",
  "no_account",
  "account_exists",
  "no_account_name",
  "unverified_email",
  "account_disabled",
  "invitation_invalid",
  "server_error",
] as const satisfies readonly Reason[];

/** Returns code, title and hint of a reason. The reason comes from the address bar, so an unknown one is not shown. */
export function oidcFailure(reason: string, t: TFunction): { code: string; title: string; hint: string } {
  const known = OIDC_FAILURES.find((each) => each === reason) ?? "server_error";
  return { code: `oidc_${known}`, title: t("signIn.failed"), hint: t(`oidcFailure.${known}`) };
}
