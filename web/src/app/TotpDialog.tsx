/** Dialogs in which a person turns the second factor of logins with the password on or off. */

import { Button, Group, Modal, PasswordInput, TextInput } from "@mantine/core";
import { useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { encode } from "uqr";

import { disableTotp, putTotp, startTotp } from "../api/access";
import type { StartedTotp } from "../api/schema";
import { passwordError } from "../lib/passwords";
import { ConfirmDialog } from "../ui/ConfirmDialog";
import { Snippet } from "../ui/kit";
import style from "./EntryPage.module.css";

/** Turns the second factor on: password, secret and first code, recovery codes. */
export function EnableTotpDialog({ onClose }: { onClose: () => void }) {
  const [started, setStarted] = useState<StartedTotp | null>(null);
  const [codes, setCodes] = useState<string[] | null>(null);
  if (codes) return <RecoveryDialog codes={codes} onClose={onClose} />;
  if (started) return <CodeStep started={started} onCodes={setCodes} onClose={onClose} />;
  return <PasswordStep onStarted={setStarted} onClose={onClose} />;
}

function PasswordStep({
  onStarted,
  onClose,
}: {
  onStarted: (started: StartedTotp) => void;
  onClose: () => void;
}) {
  const { t } = useTranslation();
  const [password, setPassword] = useState("");
  const isStarted = useRef(false);
  const start = async () => {
    try {
      const started = await startTotp(password);
      isStarted.current = true;
      onStarted(started);
    } catch (error) {
      throw passwordError(error, t);
    }
  };
  return (
    <ConfirmDialog
      title={t("totp.enable")}
      text={t("totp.enableText")}
      confirm={t("totp.continue")}
      disabled={password === ""}
      onConfirm={start}
      // The form closes itself after the start, which must not close the next step.
      onClose={() => isStarted.current || onClose()}
    >
      <Password value={password} onChange={setPassword} />
    </ConfirmDialog>
  );
}

interface CodeStepProps {
  started: StartedTotp;
  onCodes: (codes: string[]) => void;
  onClose: () => void;
}

function CodeStep({ started, onCodes, onClose }: CodeStepProps) {
  const { t } = useTranslation();
  const [code, setCode] = useState("");
  const isDone = useRef(false);
  const confirm = async () => {
    try {
      const codes = await putTotp(started.setup, code);
      isDone.current = true;
      onCodes(codes);
    } catch (error) {
      throw passwordError(error, t);
    }
  };
  return (
    <ConfirmDialog
      title={t("totp.enable")}
      text={t("totp.scan")}
      confirm={t("totp.turnOn")}
      disabled={code.trim() === ""}
      onConfirm={confirm}
      onClose={() => isDone.current || onClose()}
    >
      <div className={style.fields}>
        <QrCode text={started.uri} label={t("totp.qr")} />
        <p className="quiet">{t("totp.type")}</p>
        <div data-testid="totp-secret">
          <Snippet text={started.secret} />
        </div>
        <CodeField value={code} onChange={setCode} autoFocus />
      </div>
    </ConfirmDialog>
  );
}

/** Shows the recovery codes. Only its button closes it, so that the codes are not lost by accident. */
function RecoveryDialog({ codes, onClose }: { codes: string[]; onClose: () => void }) {
  const { t } = useTranslation();
  return (
    <Modal
      opened
      onClose={onClose}
      title={t("totp.recovery")}
      withCloseButton={false}
      closeOnClickOutside={false}
      closeOnEscape={false}
    >
      <p>{t("totp.recoveryText")}</p>
      <div data-testid="recovery-codes">
        <Snippet text={codes.join("\n")} />
      </div>
      <Group justify="flex-end" mt="md">
        <Button onClick={onClose} data-autofocus>
          {t("token.done")}
        </Button>
      </Group>
    </Modal>
  );
}

/** Turns the second factor off. */
export function DisableTotpDialog({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const [password, setPassword] = useState("");
  const disable = () =>
    disableTotp(password).catch((error: unknown) => {
      throw passwordError(error, t);
    });
  return (
    <ConfirmDialog
      title={t("totp.disable")}
      text={t("totp.disableText")}
      confirm={t("totp.disable")}
      red
      disabled={password === ""}
      onConfirm={disable}
      done={t("totp.disabled")}
      onClose={onClose}
    >
      <Password value={password} onChange={setPassword} />
    </ConfirmDialog>
  );
}

function Password({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const { t } = useTranslation();
  return (
    <div className={style.fields}>
      <PasswordInput
        size="sm"
        label={t("password.current")}
        value={value}
        onChange={(event) => onChange(event.currentTarget.value)}
        autoComplete="current-password"
        data-autofocus
        visibilityToggleButtonProps={{ "aria-label": t("signIn.show") }}
      />
    </div>
  );
}

interface CodeFieldProps {
  value: string;
  onChange: (value: string) => void;
  autoFocus?: boolean;
  /** Text below the field; none by default. */
  description?: string;
}

/** The field of a code. It takes recovery codes too, so it is not only for digits. */
export function CodeField({ value, onChange, autoFocus, description }: CodeFieldProps) {
  const { t } = useTranslation();
  return (
    <TextInput
      size="sm"
      label={t("totp.code")}
      description={description}
      inputWrapperOrder={["label", "input", "description", "error"]}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      autoFocus={autoFocus}
      data-autofocus={autoFocus || undefined}
      autoComplete="one-time-code"
      autoCapitalize="none"
      spellCheck={false}
    />
  );
}

/** A QR code, drawn in the page: the secret in it is sent to no other service. */
function QrCode({ text, label }: { text: string; label: string }) {
  const { size, path } = useMemo(() => {
    const { data, size } = encode(text, { border: 4 });
    const cells = data.flatMap((row, y) =>
      row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : [])),
    );
    return { size, path: cells.join("") };
  }, [text]);
  return (
    <svg viewBox={`0 0 ${size} ${size}`} className={style.qr} role="img" aria-label={label}>
      <rect width={size} height={size} fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  );
}
