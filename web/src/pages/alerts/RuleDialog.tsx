/** Creates or changes an alert rule. A change is saved only if the rule has not been changed in between. */

import {
  MultiSelect,
  NumberInput,
  SegmentedControl,
  Select,
  Switch,
  TagsInput,
  TextInput,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ChangeEvent, useState } from "react";
import { useTranslation } from "react-i18next";

import { alertRulesQuery, channelsQuery, saveAlertRule } from "../../api/alerts";
import type { AlertRule } from "../../api/schema";
import {
  newRuleForm,
  type RuleForm,
  ruleForm,
  ruleSpec,
  selectsJobs,
  selectsOwned,
  withCondition,
} from "../../lib/alertForms";
import { CONDITION_KINDS, CONDITIONS, SEVERITIES } from "../../lib/alerts";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import style from "./alerts.module.css";
import { NamespaceInput, useNewNamespace } from "./NamespaceInput";

interface FormProps {
  form: RuleForm;
  change: (part: Partial<RuleForm>) => void;
}

/** `rule` is null for a new rule. */
export function RuleDialog({ rule, onClose }: { rule: AlertRule | null; onClose: () => void }) {
  const { t } = useTranslation();
  const newNamespace = useNewNamespace("change");
  const [form, setForm] = useState(() => (rule ? ruleForm(rule) : newRuleForm(newNamespace)));
  // Version when the dialog opened, so that a concurrent change is not overwritten.
  const [version] = useState(rule?.version ?? null);
  const change = (part: Partial<RuleForm>) => setForm({ ...form, ...part });
  const rules = useQuery(alertRulesQuery()).data?.items ?? [];
  const name = form.name.trim();
  const exists =
    rule === null &&
    rules.some((each) => each.name === name && (each.namespace ?? "default") === form.namespace.trim());
  return (
    <ConfirmDialog
      title={rule ? t("alertRule.editOf", { name: rule.name }) : t("alertRule.new")}
      text={t("alertRule.formText")}
      confirm={t("common.save")}
      size={560}
      disabled={name === "" || exists}
      onConfirm={() => saveAlertRule(ruleSpec(form), version)}
      done={t("alertRule.saved", { name })}
      onClose={onClose}
    >
      <div className={style.form}>
        <div className={style.pair}>
          <TextInput
            label={t("alertRule.name")}
            description={rule ? undefined : t("alertRule.nameHint")}
            value={form.name}
            onChange={(event) => change({ name: event.currentTarget.value })}
            error={exists && t("alertRule.exists")}
            disabled={rule !== null}
            required
            autoComplete="off"
            data-autofocus={rule === null ? true : undefined}
          />
          <NamespaceInput
            verb="change"
            value={form.namespace}
            onChange={(namespace) => change({ namespace })}
            disabled={rule !== null}
          />
        </div>
        <ConditionFields form={form} change={change} />
        <SelectionFields form={form} change={change} isFirst={rule !== null} />
        <NotificationFields form={form} change={change} />
        <MoreFields form={form} change={change} />
      </div>
    </ConfirmDialog>
  );
}

function ConditionFields({ form, change }: FormProps) {
  const { t } = useTranslation();
  const { count, duration } = CONDITIONS[form.kind];
  const countField = count?.[0] as "in_a_row" | "failures" | undefined;
  const durationField = duration?.[0] as "within" | "after" | "longer_than" | undefined;
  return (
    <div className={style.condition}>
      <Select
        label={t("alertRule.kind")}
        value={form.kind}
        onChange={(kind) => kind && change(withCondition(form, kind))}
        data={CONDITION_KINDS.map((value) => ({ value, label: t(`alertCondition.${value}`) }))}
        allowDeselect={false}
        maxDropdownHeight={320}
      />
      {countField && (
        <NumberInput
          label={t(`conditionField.${countField}`)}
          value={form.count}
          onChange={(value) => change({ count: value })}
          min={1}
          max={1_000}
          allowDecimal={false}
          required
        />
      )}
      {durationField && (
        <TextInput
          label={t(`conditionField.${durationField}`)}
          placeholder="15m"
          value={form.duration}
          onChange={(event) => change({ duration: event.currentTarget.value })}
          required
        />
      )}
    </div>
  );
}

/** `isFirst`: the name is the first field that can be changed and has the focus. */
function SelectionFields({ form, change, isFirst }: FormProps & { isFirst: boolean }) {
  const { t } = useTranslation();
  const { subject } = CONDITIONS[form.kind];
  const isExact = form.kind === "no_success";
  const text = (key: "matchName" | "matchOwner" | "matchQueue") => ({
    value: form[key],
    onChange: (event: ChangeEvent<HTMLInputElement>) => change({ [key]: event.currentTarget.value }),
    placeholder: t("alertRule.matchAny"),
  });
  return (
    <fieldset className={style.fieldset}>
      <legend>{t("alertRule.selection")}</legend>
      <TextInput
        {...text("matchName")}
        label={t(`alertRule.matchName.${subject}`)}
        description={isExact ? t("alertRule.matchExact") : t("alertRule.matchHint")}
        placeholder={isExact ? undefined : t("alertRule.matchAny")}
        required={isExact}
        data-autofocus={isFirst || undefined}
      />
      {selectsOwned(form) && (
        <>
          <div className={style.pair}>
            <TextInput {...text("matchOwner")} label={t("alertRule.match.owner")} />
            {selectsJobs(form) && <TextInput {...text("matchQueue")} label={t("alertRule.match.queue")} />}
          </div>
          <TagsInput
            label={t("alertRule.match.labels")}
            placeholder={form.labels.length === 0 ? "team=pay" : undefined}
            value={form.labels}
            onChange={(labels) => change({ labels })}
          />
        </>
      )}
    </fieldset>
  );
}

function NotificationFields({ form, change }: FormProps) {
  const { t } = useTranslation();
  const namespace = form.namespace.trim();
  const channels = useQuery({ ...channelsQuery(namespace), enabled: namespace !== "" }).data?.items ?? [];
  // A channel of the rule that does not exist stays until the user removes it.
  const names = new Set([...channels.map(({ name }) => name), ...form.notify]);
  return (
    <>
      <div>
        <div className={style.label} id="rule-severity">
          {t("alertRule.severity")}
        </div>
        <SegmentedControl
          aria-labelledby="rule-severity"
          value={form.severity}
          onChange={(severity) => change({ severity })}
          data={SEVERITIES.map((value) => ({ value, label: t(`severity.${value}`) }))}
        />
        <p className={`${style.under} ${style.hint}`}>{t(`severityHint.${form.severity}`)}</p>
      </div>
      <MultiSelect
        size="xs"
        label={t("alertRule.notify")}
        description={t("alertRule.notifyHint")}
        value={form.notify}
        onChange={(notify) => change({ notify })}
        data={[...names]}
        maxValues={10}
        searchable
        openOnFocus={false}
        nothingFoundMessage={t("channel.none")}
      />
      {form.notify.length > 0 && (
        <div className={style.pair}>
          <MultiSelect
            size="xs"
            label={t("alertRule.escalateTo")}
            description={t("alertRule.escalateHint")}
            value={form.escalateTo}
            onChange={(escalateTo) => change({ escalateTo })}
            data={[...names, ...form.escalateTo].filter(
              (name, i, all) => all.indexOf(name) === i && !form.notify.includes(name),
            )}
            maxValues={10}
            searchable
            openOnFocus={false}
            nothingFoundMessage={t("channel.none")}
          />
          <TextInput
            label={t("alertRule.escalateAfter")}
            description={t("alertRule.escalateAfterHint")}
            value={form.escalateAfter}
            onChange={(event) => change({ escalateAfter: event.currentTarget.value })}
            placeholder="30m"
          />
        </div>
      )}
      <div className={style.pair}>
        <TextInput
          label={t("alertRule.repeat")}
          description={t("alertRule.repeatHint")}
          value={form.repeat}
          onChange={(event) => change({ repeat: event.currentTarget.value })}
        />
        <Switch
          className={style.switch}
          label={t("alertRule.notifyResolved")}
          checked={form.notifyResolved}
          onChange={(event) => change({ notifyResolved: event.currentTarget.checked })}
        />
      </div>
    </>
  );
}

function MoreFields({ form, change }: FormProps) {
  const { t } = useTranslation();
  return (
    <>
      <TextInput
        label={t("alertRule.runbook")}
        description={t("alertRule.runbookHint")}
        placeholder="https://wiki.example.com/…"
        value={form.runbook}
        onChange={(event) => change({ runbook: event.currentTarget.value })}
      />
      <div className={style.pair}>
        <TextInput
          label={t("alertRule.owner")}
          value={form.owner}
          onChange={(event) => change({ owner: event.currentTarget.value })}
        />
        <TextInput
          label={t("alertRule.description")}
          value={form.description}
          onChange={(event) => change({ description: event.currentTarget.value })}
        />
      </div>
      <Switch
        label={t("alertRule.isEnabled")}
        checked={form.enabled}
        onChange={(event) => change({ enabled: event.currentTarget.checked })}
      />
    </>
  );
}
