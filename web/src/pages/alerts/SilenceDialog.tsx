/** Creates a silence, for an alert or for any pattern. */

import { SegmentedControl, TextInput } from "@mantine/core";
import { TriangleAlert } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { createSilence } from "../../api/alerts";
import { SILENCE_DURATIONS } from "../../lib/alerts";
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
  const [reason, setReason] = useState("");
  const create = async () => {
    await createSilence({
      namespace: namespace.trim(),
      rule: rule.trim() || undefined,
      subject: subject.trim() || undefined,
      duration,
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
