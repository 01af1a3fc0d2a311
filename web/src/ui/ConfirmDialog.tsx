/** A dialog that confirms an action, with an optional text field. */

import { Button, Group, Modal, TextInput } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";

interface AskProps {
  title: string;
  text: string;
  /** Text field; none by default. */
  field?: { label: string; value?: string };
  /** Further form fields. */
  children?: ReactNode;
  confirm: string;
  red?: boolean;
  onConfirm: (text: string) => Promise<void>;
  onClose: () => void;
}

export function ConfirmDialog({ title, text, field, children, confirm, red, onConfirm, onClose }: AskProps) {
  const { t } = useTranslation();
  const [value, setValue] = useState(field?.value ?? "");
  const [busy, setBusy] = useState(false);
  const submit = async () => {
    setBusy(true);
    await onConfirm(value.trim());
    onClose();
  };
  return (
    <Modal opened onClose={onClose} title={title} size={420}>
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
        <Group justify="flex-end" mt="md" gap="xs">
          <Button variant="default" onClick={onClose}>
            {t("common.back")}
          </Button>
          <Button type="submit" loading={busy} color={red ? "red" : undefined}>
            {confirm}
          </Button>
        </Group>
      </form>
    </Modal>
  );
}
