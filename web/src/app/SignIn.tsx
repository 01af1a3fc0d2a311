/** The login page: an account and its password, or a token. */

import { Button, Checkbox, PasswordInput, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { useTranslation } from "react-i18next";

import { logIn, signIn } from "../api/auth";
import type { ApiError } from "../api/errors";
import { passwordError } from "../lib/passwords";
import { ErrorBox, Snippet } from "../ui/kit";
import { EntryPage } from "./EntryPage";
import style from "./EntryPage.module.css";

export function SignIn() {
  const { t } = useTranslation();
  const [byToken, setByToken] = useState(false);
  return (
    <EntryPage title={t("signIn.title")}>
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

function PasswordForm() {
  const { t } = useTranslation();
  const [account, setAccount] = useState("");
  const [password, setPassword] = useState("");
  const [remember, setRemember] = useState(false);
  const { busy, error, submit } = useSubmit(() => logIn(account, password, remember));
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
      <Remember value={remember} onChange={setRemember} />
      {error && <ErrorBox error={error} />}
      <Button
        size="sm"
        type="submit"
        loading={busy}
        disabled={account.trim() === "" || password === ""}
        fullWidth
      >
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
      setError(passwordError(error, t));
      setBusy(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run();
  };
  return { busy, error, submit };
}
