/** Settings of a namespace. Saved only if they have not been changed in between. */

import { Button, Group, Modal, NumberInput, Select, TextInput } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { saveNamespaceSettings } from "../../api/actions";
import { ApiError } from "../../api/errors";
import type { Namespace } from "../../api/schema";
import { PRIORITY_CLASSES } from "../../lib/priorityClasses";
import { formOf, type QuotaForm, settingsOf } from "../../lib/quotas";
import { SANDBOX_LEVELS, SANDBOX_NETWORKS } from "../../lib/sandboxes";
import { ErrorBox } from "../../ui/kit";
import { notify } from "../../ui/notify";
import style from "./namespaces.module.css";

/** Choice of the most open network if the namespace sets none. */
const ANY_NETWORK = "default";

/** `namespace` is null for a new namespace. */
export function NamespaceDialog({
  namespace,
  onClose,
}: {
  namespace: Namespace | null;
  onClose: () => void;
}) {
  const { t } = useTranslation();
  const [name, setName] = useState(namespace?.name ?? "");
  const [form, setForm] = useState<QuotaForm>(() => formOf(namespace?.settings ?? {}));
  // Version when the dialog opened, so that a concurrent change is not overwritten.
  const [version] = useState(namespace?.version ?? 0);
  const [apiError, setApiError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const settings = settingsOf(form);
  const text = (key: "cpu" | "memory" | "custom" | "note") => ({
    value: form[key],
    onChange: (event: { currentTarget: { value: string } }) =>
      setForm({ ...form, [key]: event.currentTarget.value }),
  });
  const number = (key: "running" | "jobs") => ({
    value: form[key],
    min: 1,
    allowDecimal: false,
    allowNegative: false,
    placeholder: t("namespace.unlimited"),
    onChange: (value: string | number) => setForm({ ...form, [key]: String(value) }),
  });
  const save = async () => {
    if (settings === null) return;
    setBusy(true);
    setApiError(null);
    try {
      await saveNamespaceSettings(name.trim(), settings, version);
      notify(t("namespace.saved", { name: name.trim() }));
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
      title={namespace ? t("namespace.settingsOf", { name: namespace.name }) : t("namespace.setUp")}
      size={480}
      closeButtonProps={{ "aria-label": t("common.close") }}
    >
      <form
        className={style.form}
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        {!namespace && (
          <TextInput
            label={t("namespace.name")}
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
            data-autofocus
          />
        )}
        <p className="quiet">{t("namespace.usageHint")}</p>
        <div className={style.pair}>
          <TextInput
            label={t("namespace.cpu")}
            description={t("namespace.cpuHint")}
            placeholder={t("namespace.unlimited")}
            data-autofocus={namespace ? true : undefined}
            {...text("cpu")}
          />
          <TextInput
            label={t("namespace.memory")}
            description={t("namespace.memoryHint")}
            placeholder={t("namespace.unlimited")}
            {...text("memory")}
          />
        </div>
        <TextInput
          label={t("namespace.custom")}
          description={t("namespace.customHint")}
          placeholder={t("namespace.unlimited")}
          error={settings === null && t("namespace.customInvalid")}
          {...text("custom")}
        />
        <div className={style.pair}>
          <NumberInput label={t("namespace.runningLimit")} {...number("running")} />
          <NumberInput
            label={t("namespace.jobsLimit")}
            description={t("namespace.jobsHint")}
            inputWrapperOrder={["label", "input", "description", "error"]}
            {...number("jobs")}
          />
        </div>
        <Select
          label={t("namespace.class")}
          description={t("namespace.classHint")}
          data={PRIORITY_CLASSES.map((value) => ({ value, label: t(`priorityClass.${value}`) }))}
          value={form.highest}
          onChange={(value) => {
            const highest = PRIORITY_CLASSES.find((each) => each === value);
            if (highest) setForm({ ...form, highest });
          }}
          allowDeselect={false}
        />
        <div className={form.sandbox === "none" ? undefined : style.pair}>
          <Select
            label={t("namespace.minSandbox")}
            description={t("namespace.minSandboxHint")}
            inputWrapperOrder={["label", "input", "description", "error"]}
            data={SANDBOX_LEVELS.map((value) => ({ value, label: t(`sandboxLevel.${value}`) }))}
            value={form.sandbox}
            onChange={(sandbox) => sandbox !== null && setForm({ ...form, sandbox })}
            allowDeselect={false}
          />
          {form.sandbox !== "none" && (
            <Select
              label={t("namespace.maxNetwork")}
              data={[
                { value: ANY_NETWORK, label: t("namespace.anyNetwork") },
                ...SANDBOX_NETWORKS.map((value) => ({ value, label: t(`sandboxNetwork.${value}`) })),
              ]}
              value={form.network ?? ANY_NETWORK}
              onChange={(value) =>
                setForm({ ...form, network: SANDBOX_NETWORKS.find((each) => each === value) ?? null })
              }
              allowDeselect={false}
            />
          )}
        </div>
        <TextInput label={t("namespace.note")} placeholder={t("common.optional")} {...text("note")} />
        {apiError && <ErrorBox error={apiError} />}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>
            {t("common.back")}
          </Button>
          <Button type="submit" loading={busy} disabled={name.trim() === "" || settings === null}>
            {t("common.save")}
          </Button>
        </Group>
      </form>
    </Modal>
  );
}
