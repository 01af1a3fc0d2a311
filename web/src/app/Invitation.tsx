/** The page of an invitation: its bearer chooses a password, or logs in at the OpenID provider. */

import { Button, Divider, PasswordInput } from "@mantine/core";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";

import { acceptInvitation, checkInvitation, leaveInvitation } from "../api/auth";
import { ApiError } from "../api/errors";
import type { CheckedInvitation } from "../api/schema";
import { isLongEnough } from "../lib/passwords";
import { ErrorBox, Loading } from "../ui/kit";
import { AbsoluteTime } from "../ui/Time";
import { EntryPage } from "./EntryPage";
import style from "./EntryPage.module.css";
import { NewPassword } from "./NewPassword";
import { ProviderButton, Remember, useProvider, useSecondFactor, useSubmit } from "./SignIn";
import { CodeField } from "./TotpDialog";

export function Invitation({ secret }: { secret: string }) {
  const { t } = useTranslation();
  const [found, setFound] = useState<CheckedInvitation | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  useEffect(() => {
    let isCurrent = true;
    setFound(null);
    setError(null);
    checkInvitation(secret).then(
      (found) => isCurrent && setFound(found),
      (error: unknown) => isCurrent && setError(ApiError.from(error)),
    );
    return () => {
      isCurrent = false;
    };
  }, [secret]);
  return (
    <EntryPage title={found?.has_password ? t("invitation.titleReset") : t("invitation.title")}>
      {!found && !error && <Loading rows={3} />}
      {error && (
        <>
          <ErrorBox error={error} />
          <Button variant="default" onClick={leaveInvitation} fullWidth>
            {t("invitation.leave")}
          </Button>
        </>
      )}
      {found && <Provider secret={secret} />}
      {found && <Form secret={secret} invitation={found} />}
    </EntryPage>
  );
}

/** Links the account to the person at the OpenID provider. */
function Provider({ secret }: { secret: string }) {
  const { t } = useTranslation();
  const method = useProvider();
  if (!method) return null;
  return (
    <>
      <ProviderButton method={method} secret={secret} />
      <Divider label={t("signIn.or")} />
    </>
  );
}

function Form({ secret, invitation }: { secret: string; invitation: CheckedInvitation }) {
  const { t } = useTranslation();
  const { account, title, expires_at } = invitation;
  const [password, setPassword] = useState("");
  const [repeated, setRepeated] = useState("");
  const [remember, setRemember] = useState(false);
  const [code, setCode] = useState("");
  const second = useSecondFactor();
  const { busy, error, submit } = useSubmit(() =>
    acceptInvitation(secret, password, second.isNeeded ? code : undefined, remember).catch(second.notice),
  );
  const differs = repeated !== "" && repeated !== password;
  return (
    <form className={style.form} onSubmit={submit}>
      <p className={style.account}>
        <strong className="clip">{title ?? account}</strong>
        {title && <span className="quiet clip">{account}</span>}
      </p>
      {/* Password managers store the password with this name. */}
      <input type="text" name="username" value={account} autoComplete="username" readOnly hidden />
      <NewPassword label={t("invitation.password")} value={password} onChange={setPassword} autoFocus />
      <PasswordInput
        size="sm"
        label={t("invitation.repeat")}
        value={repeated}
        onChange={(event) => setRepeated(event.currentTarget.value)}
        error={differs ? t("invitation.differs") : null}
        autoComplete="new-password"
        visibilityToggleButtonProps={{ "aria-label": t("signIn.show") }}
      />
      {second.isNeeded && (
        <CodeField value={code} onChange={setCode} autoFocus description={t("totp.codeHint")} />
      )}
      <Remember value={remember} onChange={setRemember} />
      {error && <ErrorBox error={error} />}
      <Button
        size="sm"
        type="submit"
        loading={busy}
        disabled={!isLongEnough(password) || repeated !== password}
        fullWidth
      >
        {t("invitation.accept")}
      </Button>
      <p className={`quiet ${style.small}`}>
        {t("invitation.until")} <AbsoluteTime at={expires_at} />
      </p>
    </form>
  );
}
