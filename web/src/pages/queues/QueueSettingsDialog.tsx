/** Settings of a queue. Saved only if they have not been changed in between. */

import { Button, Group, Modal, NumberInput, TextInput } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { saveQueueSettings } from "../../api/actions";
import { ApiError } from "../../api/errors";
import type { Queue, QueueSettings } from "../../api/schema";
import { notify } from "../../ui/notify";
import { ErrorBox } from "../../ui/kit";
import style from "./queues.module.css";

/** `queue` is null for a new queue. */
export function QueueSettingsDialog({ queue, onClose }: { queue: Queue | null; onClose: () => void }) {
  const { t } = useTranslation();
  const [name, setName] = useState(queue?.name ?? "");
  const [settings, setSettings] = useState<QueueSettings>(queue?.settings ?? {});
  // Version when the dialog opened, so that a concurrent change is not overwritten.
  const [version] = useState(queue?.version ?? 0);
  const [apiError, setApiError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const number = (key: "concurrency" | "rate_per_second" | "burst" | "weight") => ({
    value: settings[key] ?? "",
    min: 0,
    onChange: (value: string | number) =>
      setSettings({ ...settings, [key]: value === "" ? undefined : Number(value) }),
  });
  const save = async () => {
    setBusy(true);
    setApiError(null);
    try {
      await saveQueueSettings(name.trim(), settings, version);
      notify(t("queue.saved", { name: name.trim() }));
      onClose();
    } catch (error) {
      setApiError(ApiError.from(error));
      setBusy(false);
    }
  };
  return (
    <Modal
      opened
      onClose={onClose}
      title={queue ? t("queue.settingsOf", { name: queue.name }) : t("queue.setUp")}
      size={440}
    >
      <form
        className={style.form}
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        {!queue && (
          <TextInput
            label={t("queue.name")}
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
            data-autofocus
          />
        )}
        <NumberInput
          label={t("queue.concurrency")}
          description={t("queue.concurrencyHint")}
          placeholder={t("queue.unlimited")}
          data-autofocus={queue ? true : undefined}
          {...number("concurrency")}
        />
        <div className={style.pair}>
          <NumberInput
            label={t("queue.rate")}
            placeholder={t("queue.unlimited")}
            decimalScale={3}
            {...number("rate_per_second")}
          />
          <NumberInput label={t("queue.burst")} placeholder={t("queue.burstDefault")} {...number("burst")} />
        </div>
        <NumberInput
          label={t("queue.weight")}
          description={t("queue.weightHint")}
          placeholder="1"
          {...number("weight")}
        />
        {apiError && <ErrorBox error={apiError} />}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>
            {t("common.back")}
          </Button>
          <Button type="submit" loading={busy} disabled={name.trim() === ""}>
            {t("common.save")}
          </Button>
        </Group>
      </form>
    </Modal>
  );
}
