/** Form with the common members of a job spec. Other members are kept in the file. */

import { Accordion, NumberInput, Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";

import { queuesQuery } from "../../api/queries";
import type { Delivery, FieldError, FinishAction, Guarantee, JobSpec, PriorityClass } from "../../api/schema";
import { DEFAULT_POLICIES, effectivePolicies, policiesOf, policyChoices } from "../../lib/guarantees";
import { usePreferences } from "../../lib/preferences";
import { DEFAULT_CLASS, effectiveClass, PRIORITY_CLASSES } from "../../lib/priorityClasses";
import { splitList } from "../../lib/quantities";
import { runtimeOf } from "../../lib/runtimes";
import { formatExact, parseWallTime, toWallTime, zoneName } from "../../lib/time";
import { KeyValueField, ListField } from "./fields";
import { ContainerItem, EnvField, RunFields } from "./RunFields";
import style from "./submit.module.css";

interface Props {
  spec: JobSpec;
  set: (path: string[], value: unknown) => void;
  fields: readonly FieldError[];
  /** Whether it is part of the form of a schedule or workflow, which sets names and times itself. */
  inSchedule?: boolean;
  /** Guarantee of the schedule, which sets the delivery. */
  guarantee?: Guarantee | null;
  /** Priority class of the workflow, which its jobs have by default. */
  workflowClass?: PriorityClass;
}

export function SpecForm({ spec, set, fields, inSchedule, guarantee, workflowClass }: Props) {
  const { t } = useTranslation();
  const { zone } = usePreferences();
  const queues = useQuery(queuesQuery).data?.items.map((queue) => queue.name) ?? [];
  const hasEnv = ["process", "container"].includes(runtimeOf(spec) ?? "");
  const { delivery } = effectivePolicies({ guarantee, job: spec });
  const baseDelivery = policiesOf(guarantee).delivery;
  const error = (path: string) => fields.find((field) => field.path === path)?.detail;
  const setText = (path: string[], value: string) => set(path, value.trim() === "" ? undefined : value);
  const number = (path: string[], value: string | number) =>
    set(path, value === "" ? undefined : Number(value));

  return (
    <div className={style.fields}>
      {!inSchedule && (
        <TextInput
          label={t("submit.name")}
          placeholder="job"
          value={spec.name ?? ""}
          onChange={(event) => setText(["name"], event.currentTarget.value)}
          error={error("name")}
          data-testid="name"
        />
      )}
      <RunFields spec={spec} set={set} fields={fields} />
      <Select
        label={t("submit.queue")}
        placeholder="default"
        data={queues}
        value={queues.includes(spec.queue ?? "") ? (spec.queue ?? null) : null}
        onChange={(value) => set(["queue"], value ?? undefined)}
        clearable
        error={error("queue")}
      />
      <div className={style.pair}>
        <PriorityClassField
          value={spec.priority_class}
          ofWorkflow={workflowClass}
          onChange={(value) => set(["priority_class"], value)}
          error={error("priority_class")}
        />
        <NumberInput
          label={t("submit.priority")}
          description={undefined}
          placeholder="50"
          min={0}
          max={100}
          value={spec.priority ?? ""}
          onChange={(value) => number(["priority"], value)}
          error={error("priority")}
        />
      </div>
      <div className={style.pair}>
        <TextInput
          label={t("submit.timeout")}
          placeholder="10m"
          value={spec.timeout ?? ""}
          onChange={(event) => setText(["timeout"], event.currentTarget.value)}
          error={error("timeout")}
        />
        <NumberInput
          label={t("submit.retries")}
          placeholder="0"
          min={0}
          value={spec.retry?.max_retries ?? ""}
          onChange={(value) => number(["retry", "max_retries"], value)}
          error={error("retry.max_retries")}
        />
      </div>
      <div className={style.pair}>
        <DelaysField
          value={spec.retry?.backoff?.delays}
          onChange={(delays) => set(["retry", "backoff", "delays"], delays)}
          error={fields.find((field) => field.path.startsWith("retry.backoff"))?.detail}
        />
        <NumberInput
          label={t("submit.maxLost")}
          placeholder="5"
          min={0}
          value={spec.retry?.max_lost ?? ""}
          onChange={(value) => number(["retry", "max_lost"], value)}
          error={error("retry.max_lost")}
          data-testid="max-lost"
        />
      </div>
      <Accordion
        variant="default"
        chevronPosition="left"
        classNames={{ root: style.more, content: style.moreContent }}
      >
        <Accordion.Item value="when">
          <Accordion.Control>{inSchedule ? t("job.details.finishBy") : t("submit.when")}</Accordion.Control>
          <Accordion.Panel>
            {!inSchedule && (
              <div className={style.pair}>
                <TextInput
                  label={t("submit.runAt", { zone: zoneName(zone) })}
                  type="datetime-local"
                  value={spec.run_at ? toWallTime(Date.parse(spec.run_at), zone) : ""}
                  onChange={(event) => {
                    const at = event.currentTarget.value;
                    set(["run_at"], at === "" ? undefined : new Date(parseWallTime(at, zone)).toISOString());
                  }}
                  error={error("run_at")}
                />
                <TextInput
                  label={t("submit.deadline")}
                  placeholder="1h"
                  value={spec.start_deadline ?? ""}
                  onChange={(event) => setText(["start_deadline"], event.currentTarget.value)}
                  error={error("start_deadline")}
                />
              </div>
            )}
            <FinishByFields spec={spec} set={set} fields={fields} />
          </Accordion.Panel>
        </Accordion.Item>
        <Accordion.Item value="resources">
          <Accordion.Control>{t("submit.resources")}</Accordion.Control>
          <Accordion.Panel>
            <div className={style.pair}>
              <TextInput
                label="CPU"
                placeholder="100m"
                value={spec.resources?.cpu ?? ""}
                onChange={(event) => setText(["resources", "cpu"], event.currentTarget.value)}
                error={error("resources.cpu")}
              />
              <TextInput
                label={t("submit.memory")}
                placeholder="64MiB"
                value={spec.resources?.memory ?? ""}
                onChange={(event) => setText(["resources", "memory"], event.currentTarget.value)}
                error={error("resources.memory")}
              />
            </div>
          </Accordion.Panel>
        </Accordion.Item>
        <ContainerItem spec={spec} set={set} fields={fields} />
        <Accordion.Item value="words">
          <Accordion.Control>{hasEnv ? t("submit.labelsAndEnv") : t("job.details.labels")}</Accordion.Control>
          <Accordion.Panel>
            <KeyValueField
              label={t("submit.labels")}
              placeholder="team=pay"
              value={spec.labels ?? {}}
              onChange={(value) => set(["labels"], value)}
              error={fields.find((field) => field.path.startsWith("labels"))?.detail}
            />
            <EnvField spec={spec} set={set} fields={fields} />
          </Accordion.Panel>
        </Accordion.Item>
        <Accordion.Item value="promise">
          <Accordion.Control>{t("submit.promise")}</Accordion.Control>
          <Accordion.Panel>
            <Select
              label={t("submit.delivery")}
              data={policyChoices(DELIVERIES, DEFAULT_POLICIES.delivery, baseDelivery).map((choice) => ({
                ...choice,
                label: t(`delivery.${choice.value}`),
              }))}
              value={delivery}
              onChange={(value) => set(["delivery"], value === baseDelivery ? undefined : value)}
              allowDeselect={false}
            />
            <p className="quiet">{t(`deliveryHint.${delivery}`)}</p>
          </Accordion.Panel>
        </Accordion.Item>
      </Accordion>
    </div>
  );
}

const DELIVERIES = ["at_least_once", "at_most_once", "exactly_once"] as const satisfies readonly Delivery[];
const FINISH_ACTIONS = ["fail", "cancel", "report"] as const satisfies readonly FinishAction[];

/** The completion deadline as a duration, and its action. A time is set in the file; a duration replaces it. */
function FinishByFields({ spec, set, fields }: Pick<Props, "spec" | "set" | "fields">) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  // The file may have a value of another type, which is replaced.
  const finishBy = typeof spec.finish_by === "object" ? spec.finish_by : null;
  const error = (path: string) => fields.find((field) => field.path === path)?.detail;
  const setAfter = (after: string) => {
    if (after.trim() === "") return set(["finish_by"], undefined);
    if (!finishBy) return set(["finish_by"], { after });
    if (finishBy.at != null) set(["finish_by", "at"], undefined);
    set(["finish_by", "after"], after);
  };
  return (
    <div className={style.pair}>
      <TextInput
        label={t("submit.finishBy")}
        placeholder="6h"
        description={
          finishBy?.at ? t("submit.finishAt", { at: formatExact(finishBy.at, language, zone) }) : undefined
        }
        inputWrapperOrder={["label", "input", "description", "error"]}
        value={finishBy?.after ?? ""}
        onChange={(event) => setAfter(event.currentTarget.value)}
        error={error("finish_by.after") ?? error("finish_by.at") ?? error("finish_by")}
        data-testid="finish-after"
      />
      <Select
        label={t("submit.finishAction")}
        data={FINISH_ACTIONS.map((value) => ({ value, label: t(`finishAction.${value}`) }))}
        value={finishBy?.action ?? "fail"}
        onChange={(value) => set(["finish_by", "action"], value === "fail" ? undefined : value)}
        disabled={!finishBy}
        allowDeselect={false}
        error={error("finish_by.action")}
        data-testid="finish-action"
      />
    </div>
  );
}

interface PriorityClassFieldProps {
  value: unknown;
  ofWorkflow: PriorityClass | undefined;
  onChange: (value: PriorityClass | undefined) => void;
  error?: string;
}

/** The priority class, with a hint. */
function PriorityClassField({ value, ofWorkflow, onChange, error }: PriorityClassFieldProps) {
  const { t } = useTranslation();
  const base = effectiveClass(undefined, ofWorkflow);
  const chosen = effectiveClass(value, ofWorkflow);
  return (
    <Select
      label={t("submit.priorityClass")}
      description={t(`priorityClassHint.${chosen}`)}
      inputWrapperOrder={["label", "input", "description", "error"]}
      data={policyChoices(PRIORITY_CLASSES, DEFAULT_CLASS, base).map((choice) => ({
        ...choice,
        label: t(`priorityClass.${choice.value}`),
      }))}
      value={chosen}
      onChange={(next) => onChange(next === null || next === base ? undefined : next)}
      allowDeselect={false}
      error={error}
      data-testid="priority-class"
    />
  );
}

interface DelaysFieldProps {
  value: readonly string[] | undefined;
  onChange: (delays: string[] | undefined) => void;
  error?: string;
}

/** A list of retry delays, such as `1m, 5m`. */
function DelaysField({ value, onChange, error }: DelaysFieldProps) {
  const { t } = useTranslation();
  // The file may have a value of another type.
  const delays = Array.isArray(value) ? value : [];
  return (
    <ListField
      label={t("submit.delays")}
      placeholder="1m, 5m, 10m"
      description={delays.length > 1 ? t("submit.delaysHint") : undefined}
      value={delays}
      split={splitList}
      onChange={onChange}
      error={error}
      testId="delays"
    />
  );
}
