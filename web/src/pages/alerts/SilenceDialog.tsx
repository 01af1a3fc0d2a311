/** Creates a silence, for an alert or for any pattern: once, or recurring for quiet hours and maintenance windows. */

import { SegmentedControl, Select, TextInput } from "@mantine/core";
import { TriangleAlert } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { createSilence } from "../../api/alerts";
import type { Severity } from "../../api/schema";
import { SEVERITIES, SILENCE_DURATIONS } from "../../lib/alerts";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import style from "./alerts.module.css";
import { NamespaceInput, useNewNamespace } from "./NamespaceInput";

interface Props {
  /** Namespace, rule and object of an alert; chosen in the dialog by default. */
  namespace?: string;
  rule?: string;
  subject?: string;
  onClose: () => void;
}

export function SilenceDialog(props: Props) {
  const { t } = useTranslation();
  const newNamespace = useNewNamespace("operate");
  const [namespace, setNamespace] = useState(props.namespace ?? newNamespace);
  const [rule, setRule] = useState(props.rule ?? "");
  const [subject, setSubject] = useState(props.subject ?? "");
  const [duration, setDuration] = useState<(typeof SILENCE_DURATIONS)[number]>("1h");
  const [kind, setKind] = useState<"once" | "recurring">("once");
  const [expression, setExpression] = useState("0 22 * * *");
  const [zone, setZone] = useState(() => Intl.DateTimeFormat().resolvedOptions().timeZone);
  const [length, setLength] = useState("9h");
  const [severityMax, setSeverityMax] = useState<Severity | null>(null);
  const [reason, setReason] = useState("");
  const create = async () => {
    await createSilence({
      namespace: namespace.trim(),
      rule: rule.trim() || undefined,
      subject: subject.trim() || undefined,
      severity_max: severityMax ?? undefined,
      ...(kind === "once"
        ? { duration }
        : {
            duration: length.trim(),
            recurrence: { expression: expression.trim(), zone: zone.trim() || "UTC" },
          }),
      reason: reason.trim(),
    });
  };
  const isForAll = rule.trim() === "" && subject.trim() === "";
  return (
    <ConfirmDialog
      title={t("silence.new")}
      text={t("silence.formText")}
      confirm={t("silence.silence")}
      disabled={reason.trim() === ""}
      onConfirm={create}
      done={t("silence.created")}
      onClose={props.onClose}
    >
      <div className={style.form}>
        {props.namespace === undefined && (
          <NamespaceInput verb="operate" value={namespace} onChange={setNamespace} />
        )}
        <div className={style.pair}>
          <TextInput
            label={t("silence.rule")}
            description={t("silence.patternHint")}
            placeholder={t("silence.any")}
            value={rule}
            onChange={(event) => setRule(event.currentTarget.value)}
          />
          <TextInput
            label={t("silence.subject")}
            description={t("silence.patternHint")}
            placeholder={t("silence.any")}
            value={subject}
            onChange={(event) => setSubject(event.currentTarget.value)}
          />
        </div>
        {isForAll && (
          <p className={style.warning}>
            <TriangleAlert size={15} aria-hidden /> {t("silence.everything")}
          </p>
        )}
        <Select
          label={t("silence.severityMax")}
          placeholder={t("silence.any")}
          value={severityMax}
          onChange={setSeverityMax}
          data={SEVERITIES.filter((each) => each !== "critical").map((value) => ({
            value,
            label: t(`severity.${value}`),
          }))}
          clearable
        />
        <SegmentedControl
          aria-label={t("silence.recurrence")}
          value={kind}
          onChange={setKind}
          data={[
            { value: "once", label: t("silence.once") },
            { value: "recurring", label: t("silence.recurring") },
          ]}
        />
        {kind === "once" ? (
          <div>
            <div className={style.label} id="silence-duration">
              {t("silence.duration")}
            </div>
            <SegmentedControl
              aria-labelledby="silence-duration"
              fullWidth
              value={duration}
              onChange={setDuration}
              data={SILENCE_DURATIONS.map((value) => ({ value, label: t(`silence.durations.${value}`) }))}
            />
          </div>
        ) : (
          <>
            <div className={style.pair}>
              <TextInput
                label={t("silence.startTimes")}
                value={expression}
                onChange={(event) => setExpression(event.currentTarget.value)}
                required
              />
              <TextInput
                label={t("monitor.zone")}
                value={zone}
                onChange={(event) => setZone(event.currentTarget.value)}
                placeholder="UTC"
              />
            </div>
            <TextInput
              label={t("silence.periodLength")}
              description={t("silence.periodHint")}
              value={length}
              onChange={(event) => setLength(event.currentTarget.value)}
              required
            />
          </>
        )}
        <TextInput
          label={t("silence.reason")}
          value={reason}
          onChange={(event) => setReason(event.currentTarget.value)}
          maxLength={1_000}
          required
          data-autofocus
        />
      </div>
    </ConfirmDialog>
  );
}
