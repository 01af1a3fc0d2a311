/** The dialog in which a person changes the own password. */

import { PasswordInput } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { changePassword } from "../api/access";
import { isLongEnough, passwordError } from "../lib/passwords";
import { ConfirmDialog } from "../ui/ConfirmDialog";
import style from "./EntryPage.module.css";
import { NewPassword } from "./NewPassword";

export function ChangePasswordDialog({ account, onClose }: { account: string; onClose: () => void }) {
  const { t } = useTranslation();
  const [current, setCurrent] = useState("");
  const [next, setNext] = useState("");
  return (
    <ConfirmDialog
      title={t("password.change")}
      text={t("password.changeText")}
      confirm={t("password.change")}
      disabled={current === "" || !isLongEnough(next)}
      onConfirm={() =>
        changePassword(current, next).catch((error: unknown) => {
          throw passwordError(error, t);
        })
      }
      done={t("password.changed")}
      onClose={onClose}
    >
      <div className={style.fields}>
        <input type="text" name="username" value={account} autoComplete="username" readOnly hidden />
        <PasswordInput
          size="sm"
          label={t("password.current")}
          value={current}
          onChange={(event) => setCurrent(event.currentTarget.value)}
          autoComplete="current-password"
          data-autofocus
          visibilityToggleButtonProps={{ "aria-label": t("signIn.show") }}
        />
        <NewPassword label={t("password.new")} value={next} onChange={setNext} />
      </div>
    </ConfirmDialog>
  );
}
