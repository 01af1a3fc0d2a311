/** The field of a new password, with its rules. */

import { PasswordInput } from "@mantine/core";
import { useTranslation } from "react-i18next";

import { PASSWORD_CHARS_MIN } from "../lib/passwords";

interface Props {
  label: string;
  value: string;
  onChange: (value: string) => void;
  autoFocus?: boolean;
}

export function NewPassword({ label, value, onChange, autoFocus }: Props) {
  const { t } = useTranslation();
  return (
    <PasswordInput
      size="sm"
      label={label}
      description={t("password.rule", { count: PASSWORD_CHARS_MIN })}
      inputWrapperOrder={["label", "input", "description", "error"]}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      autoComplete="new-password"
      autoFocus={autoFocus}
      visibilityToggleButtonProps={{ "aria-label": t("signIn.show") }}
    />
  );
}
