/** The login page: the OpenID provider, an account and its password, or a token. */

import { Button, Checkbox, Divider, PasswordInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { useTranslation } from "react-i18next";

import { failedLogin, leaveForProvider, logIn, loginMethods, signIn } from "../api/auth";
import { ApiError } from "../api/errors";
import type { OidcMethod } from "../api/schema";
import { oidcFailure } from "../lib/oidcFailure";
import { passwordError } from "../lib/passwords";
import { ErrorBox, Snippet } from "../ui/kit";
import { EntryPage } from "./EntryPage";
import style from "./EntryPage.module.css";
import { CodeField } from "./TotpDialog";

export function SignIn() {
  const { t } = useTranslation();
  const [byToken, setByToken] = useState(false);
  return (
    <EntryPage title={t("signIn.title")}>
      <ProviderLogin />
      {byToken ? <TokenForm /> : <PasswordForm />}
      <button type="button" className={style.other} onClick={() => setByToken(!byToken)}>
        {byToken ? t("signIn.usePassword") : t("signIn.useToken")}
      </button>
      {byToken && (
        <div className={style.help}>
          <p className="quiet">{t("signIn.where")}</p>
          <Snippet text="cat ~/.local/share/belfry/admin-token" />
        </div>
      )}
    </EntryPage>
  );
}

const methodsQuery = { queryKey: ["loginMethods"], queryFn: loginMethods };

/** The OpenID provider of the server, and why the last login there failed. */
function ProviderLogin() {
  const { t } = useTranslation();
  const method = useProvider();
  const failure = failedLogin();
  const failed = failure === null ? null : oidcFailure(failure, t);
  return (
    <>
      {failed && <ErrorBox error={new ApiError(failed.code, 0, failed.title, { hint: failed.hint })} />}
      {method && (
        <>
          <ProviderButton method={method} />
          <Divider label={t("signIn.or")} />
        </>
      )}
    </>
  );
}

/**
 * Leaves for the OpenID provider. The provider sends the browser back to the URL of the dashboard in the settings, so the
 * login must start there.
 */
export function ProviderButton({ method, secret }: { method: OidcMethod; secret?: string }) {
  const { t } = useTranslation();
  const [remember, setRemember] = useState(false);
  const { busy, error, submit } = useSubmit(async () => {
    if (new URL(method.url).origin === location.origin) return leaveForProvider(remember, secret);
    location.assign(secret === undefined ? `${method.url}/` : `${method.url}/#invite=${secret}`);
  });
  return (
    <form className={style.form} onSubmit={submit}>
      {error && <ErrorBox error={error} />}
      <Button size="sm" type="submit" loading={busy} variant="default" fullWidth>
        {t("signIn.provider", { name: method.name })}
      </Button>
      <Remember value={remember} onChange={setRemember} />
    </form>
  );
}

/** Returns the OpenID provider of the server; undefined if it has none, or is not known yet. */
export function useProvider(): OidcMethod | undefined {
  return useQuery(methodsQuery).data?.oidc ?? undefined;
}

function PasswordForm() {
  const { t } = useTranslation();
  const [account, setAccount] = useState("");
  const [password, setPassword] = useState("");
  const [remember, setRemember] = useState(false);
  const [code, setCode] = useState("");
  const second = useSecondFactor();
  const { busy, error, submit } = useSubmit(() =>
    logIn(account, password, second.isNeeded ? code : undefined, remember).catch(second.notice),
  );
  const isComplete = account.trim() !== "" && password !== "" && (!second.isNeeded || code.trim() !== "");
  return (
    <form className={style.form} onSubmit={submit}>
      <TextInput
        size="sm"
        label={t("signIn.account")}
        value={account}
        onChange={(event) => setAccount(event.currentTarget.value)}
        autoFocus
        autoComplete="username"
        autoCapitalize="none"
        spellCheck={false}
      />
      <PasswordInput
        size="sm"
        label={t("signIn.password")}
        value={password}
        onChange={(event) => setPassword(event.currentTarget.value)}
        autoComplete="current-password"
        visibilityToggleButtonProps={{ "aria-label": t("signIn.show") }}
      />
      {second.isNeeded && (
        <CodeField value={code} onChange={setCode} autoFocus description={t("totp.codeHint")} />
      )}
      <Remember value={remember} onChange={setRemember} />
      {error && <ErrorBox error={error} />}
      <Button size="sm" type="submit" loading={busy} disabled={!isComplete} fullWidth>
        {t("signIn.enter")}
      </Button>
      <p className={`quiet ${style.small}`}>{t("signIn.forgotten")}</p>
    </form>
  );
}

function TokenForm() {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const [remember, setRemember] = useState(true);
  const { busy, error, submit } = useSubmit(() => signIn(text, remember));
  return (
    <form className={style.form} onSubmit={submit}>
      <p className="quiet">{t("signIn.text")}</p>
      <PasswordInput
        size="sm"
        label={t("signIn.token")}
        placeholder="bf_…"
        value={text}
        onChange={(event) => setText(event.currentTarget.value)}
        autoFocus
        autoComplete="off"
        data-testid="token"
        visibilityToggleButtonProps={{ "aria-label": t("signIn.show") }}
      />
      <Remember value={remember} onChange={setRemember} />
      {error && <ErrorBox error={error} />}
      <Button size="sm" type="submit" loading={busy} disabled={text.trim() === ""} fullWidth>
        {t("signIn.enter")}
      </Button>
    </form>
  );
}

/** Whether the session survives a restart of the browser. */
export function Remember({ value, onChange }: { value: boolean; onChange: (value: boolean) => void }) {
  const { t } = useTranslation();
  return (
    <Checkbox
      label={t("signIn.remember")}
      checked={value}
      onChange={(event) => onChange(event.currentTarget.checked)}
    />
  );
}

/** Whether the server has asked for the second factor. The first such response is no error: the form shows the field. */
export function useSecondFactor() {
  const [isNeeded, setIsNeeded] = useState(false);
  const notice = (error: unknown) => {
    if (ApiError.from(error).code !== "second_factor_required" || isNeeded) throw error;
    setIsNeeded(true);
    throw new SecondFactorNeeded();
  };
  return { isNeeded, notice };
}

/** The form must be sent again with a code. */
class SecondFactorNeeded extends Error {}

/** Runs the request of a form. After a success, the page is replaced. */
export function useSubmit(send: () => Promise<void>) {
  const { t } = useTranslation();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const run = async () => {
    setBusy(true);
    setError(null);
    try {
      await send();
    } catch (error) {
      if (!(error instanceof SecondFactorNeeded)) setError(passwordError(error, t));
      setBusy(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run();
  };
  return { busy, error, submit };
}
