/** Creates or changes a monitor. A change is saved only if the monitor has not been changed in between. */

import { SegmentedControl, Switch, TagsInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ChangeEvent, useState } from "react";
import { useTranslation } from "react-i18next";

import { monitorsQuery, saveMonitor } from "../../api/monitors";
import type { Monitor } from "../../api/schema";
import { type MonitorForm, monitorForm, monitorSpec, newMonitorForm } from "../../lib/monitors";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import style from "./alerts.module.css";
import { NamespaceInput, useNewNamespace } from "./NamespaceInput";

type TextField = "every" | "expression" | "zone" | "grace" | "runTimeMax" | "owner" | "description";

/** `monitor` is null for a new monitor. */
export function MonitorDialog({ monitor, onClose }: { monitor: Monitor | null; onClose: () => void }) {
  const { t } = useTranslation();
  const newNamespace = useNewNamespace("change");
  const [form, setForm] = useState(() =>
    monitor
      ? monitorForm(monitor)
      : newMonitorForm(newNamespace, Intl.DateTimeFormat().resolvedOptions().timeZone),
  );
  // Version when the dialog opened, so that a concurrent change is not overwritten.
  const [version] = useState(monitor?.version ?? null);
  const change = (part: Partial<MonitorForm>) => setForm({ ...form, ...part });
  const text = (key: TextField) => ({
    value: form[key],
    onChange: (event: ChangeEvent<HTMLInputElement>) => change({ [key]: event.currentTarget.value }),
  });
  const monitors = useQuery(monitorsQuery()).data?.items ?? [];
  const name = form.name.trim();
  const exists =
    monitor === null &&
    monitors.some((each) => each.name === name && (each.namespace ?? "default") === form.namespace.trim());
  return (
    <ConfirmDialog
      title={monitor ? t("monitor.editOf", { name: monitor.name }) : t("monitor.new")}
      text={t("monitor.formText")}
      confirm={t("common.save")}
      size={560}
      disabled={name === "" || exists}
      onConfirm={() => saveMonitor(monitorSpec(form), version)}
      done={t("monitor.saved", { name })}
      onClose={onClose}
    >
      <div className={style.form}>
        <div className={style.pair}>
          <TextInput
            label={t("monitor.name")}
            description={monitor ? undefined : t("alertRule.nameHint")}
            value={form.name}
            onChange={(event) => change({ name: event.currentTarget.value })}
            error={exists && t("monitor.exists")}
            disabled={monitor !== null}
            required
            autoComplete="off"
            data-autofocus={monitor === null ? true : undefined}
          />
          <NamespaceInput
            verb="change"
            value={form.namespace}
            onChange={(namespace) => change({ namespace })}
            disabled={monitor !== null}
          />
        </div>
        <div>
          <div className={style.label} id="monitor-timing">
            {t("monitor.timing")}
          </div>
          <SegmentedControl
            aria-labelledby="monitor-timing"
            value={form.timing}
            onChange={(timing) => change({ timing })}
            data={[
              { value: "every", label: t("monitor.byPeriod") },
              { value: "cron", label: t("monitor.byCron") },
            ]}
          />
        </div>
        {form.timing === "every" ? (
          <TextInput
            {...text("every")}
            label={t("monitor.period")}
            description={t("monitor.periodHint")}
            required
          />
        ) : (
          <div className={style.pair}>
            <TextInput {...text("expression")} label={t("monitor.expression")} required />
            <TextInput {...text("zone")} label={t("monitor.zone")} placeholder="UTC" />
          </div>
        )}
        <div className={style.pair}>
          <TextInput {...text("grace")} label={t("monitor.grace")} description={t("monitor.graceHint")} />
          <TextInput
            {...text("runTimeMax")}
            label={t("monitor.runTimeMax")}
            description={t("monitor.runTimeMaxHint")}
          />
        </div>
        <div className={style.pair}>
          <TextInput {...text("owner")} label={t("monitor.owner")} />
          <TextInput {...text("description")} label={t("monitor.description")} />
        </div>
        <TagsInput
          label={t("monitor.labels")}
          placeholder={form.labels.length === 0 ? "env=production" : undefined}
          value={form.labels}
          onChange={(labels) => change({ labels })}
        />
        <Switch
          label={t("monitor.isEnabled")}
          checked={form.enabled}
          onChange={(event) => change({ enabled: event.currentTarget.checked })}
        />
      </div>
    </ConfirmDialog>
  );
}
