/** A dialog that confirms an action, with an optional text field. It stays open until the action succeeds. */

import { Button, Group, Modal, TextInput } from "@mantine/core";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { ErrorBox } from "./kit";
import style from "./kit.module.css";
import { notify, notifyError } from "./notify";

interface AskProps {
  title: string;
  text: string;
  /** Text field; none by default. */
  field?: { label: string; value?: string };
  /** Further form fields. */
  children?: ReactNode;
  confirm: string;
  red?: boolean;
  /** Whether the form is not complete yet. */
  disabled?: boolean;
  /** Width of the dialog in pixels [default: 420]. */
  size?: number;
  /** The action. If it rejects, the dialog stays open and shows the error. */
  onConfirm: (text: string) => Promise<void>;
  /** Notification after the action; none by default. */
  done?: string;
  onClose: () => void;
}

export function ConfirmDialog(props: AskProps) {
  const {
    title,
    text,
    field,
    children,
    confirm,
    red,
    disabled,
    size = 420,
    onConfirm,
    done,
    onClose,
  } = props;
  const { t } = useTranslation();
  const [value, setValue] = useState(field?.value ?? "");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const isOpen = useRef(true);
  useEffect(() => {
    isOpen.current = true;
    return () => void (isOpen.current = false);
  }, []);
  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      await onConfirm(value.trim());
    } catch (error) {
      // The user may have closed the dialog meanwhile.
      if (!isOpen.current) return notifyError(error);
      setError(error);
      return setBusy(false);
    }
    if (done) notify(done);
    if (isOpen.current) onClose();
  };
  return (
    <Modal
      opened
      onClose={onClose}
      title={title}
      size={size}
      closeButtonProps={{ "aria-label": t("common.close") }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <p className="quiet">{text}</p>
        {children}
        {field && (
          <TextInput
            mt="md"
            label={field.label}
            placeholder={t("common.optional")}
            value={value}
            onChange={(event) => setValue(event.currentTarget.value)}
            data-autofocus
          />
        )}
        {error !== null && (
          <div className={style.dialogError}>
            <ErrorBox error={error} />
          </div>
        )}
        <Group justify="flex-end" mt="md" gap="xs">
          <Button variant="default" onClick={onClose}>
            {t("common.back")}
          </Button>
          <Button type="submit" loading={busy} disabled={disabled} color={red ? "red" : undefined}>
            {confirm}
          </Button>
        </Group>
      </form>
    </Modal>
  );
}
