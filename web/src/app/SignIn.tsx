/** The sign-in page. */

import { Button, Checkbox, PasswordInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { useTranslation } from "react-i18next";

import { signIn } from "../api/auth";
import { ApiError } from "../api/errors";
import bell from "../assets/bell.svg";
import { setPreferences, usePreferences } from "../lib/preferences";
import { ErrorBox, Snippet } from "../ui/kit";
import style from "./SignIn.module.css";

export function SignIn() {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const [text, setText] = useState("");
  const [remember, setRemember] = useState(true);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await signIn(text, remember);
    } catch (error) {
      setError(ApiError.from(error));
      setBusy(false);
    }
  };

  return (
    <main className={style.page}>
      <form className={style.card} onSubmit={(event) => void submit(event)}>
        <img src={bell} width={40} height={40} alt="" />
        <h1>{t("signIn.title")}</h1>
        <p className="quiet">{t("signIn.text")}</p>
        <PasswordInput
          size="sm"
          label={t("signIn.token")}
          placeholder="bf_…"
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
          autoFocus
          autoComplete="current-password"
          data-testid="token"
        />
        <Checkbox
          label={t("signIn.remember")}
          checked={remember}
          onChange={(event) => setRemember(event.currentTarget.checked)}
        />
        {error && <ErrorBox error={error} />}
        <Button size="sm" type="submit" loading={busy} disabled={text.trim() === ""} fullWidth>
          {t("signIn.enter")}
        </Button>
        <div className={style.help}>
          <p className="quiet">{t("signIn.where")}</p>
          <Snippet text="cat ~/.local/share/belfry/admin-token" />
        </div>
      </form>
      <button
        type="button"
        className={style.language}
        onClick={() => setPreferences({ language: language === "en" ? "zh-CN" : "en" })}
      >
        {language === "en" ? "中文" : "English"}
      </button>
    </main>
  );
}
