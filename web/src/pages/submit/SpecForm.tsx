/** Form with the common members of a job spec. Other members are kept in the file. */

import { Accordion, NumberInput, SegmentedControl, Select, Textarea, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { queuesQuery } from "../../api/queries";
import type { Delivery, FieldError, FinishAction, Guarantee, JobSpec, PriorityClass } from "../../api/schema";
import { DEFAULT_POLICIES, effectivePolicies, policiesOf, policyChoices } from "../../lib/guarantees";
import { usePreferences } from "../../lib/preferences";
import { DEFAULT_CLASS, effectiveClass, PRIORITY_CLASSES } from "../../lib/priorityClasses";
import { splitDurations } from "../../lib/quantities";
import { formatExact, parseWallTime, toWallTime, zoneName } from "../../lib/time";
import { join, split } from "../../lib/shell";
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

/** Returns the process runtime, the only one of this form; others are edited in the file. */
export function processOf(spec: JobSpec) {
  const run = spec.run as JobSpec["run"] | undefined;
  return run && typeof run === "object" && "process" in run ? (run.process ?? {}) : null;
}

export function SpecForm({ spec, set, fields, inSchedule, guarantee, workflowClass }: Props) {
  const { t } = useTranslation();
  const { zone } = usePreferences();
  const queues = useQuery(queuesQuery).data?.items.map((queue) => queue.name) ?? [];
  const process = processOf(spec);
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
      <ProgramFields spec={spec} set={set} fields={fields} />
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
        <Accordion.Item value="words">
          <Accordion.Control>{t("submit.labelsAndEnv")}</Accordion.Control>
          <Accordion.Panel>
            <KeyValueField
              label={t("submit.labels")}
              placeholder="team=pay"
              value={spec.labels ?? {}}
              onChange={(value) => set(["labels"], value)}
              error={fields.find((field) => field.path.startsWith("labels"))?.detail}
            />
            {process && (
              <KeyValueField
                label={t("submit.env")}
                placeholder="REGION=eu-1"
                value={process.env ?? {}}
                onChange={(value) => set(["run", "process", "env"], value)}
                error={fields.find((field) => field.path.startsWith("run.process.env"))?.detail}
              />
            )}
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

/** The command or script of a job, in the process runtime. */
export function ProgramFields({ spec, set, fields }: Pick<Props, "spec" | "set" | "fields">) {
  const { t } = useTranslation();
  const process = processOf(spec);
  const error = (path: string) => fields.find((field) => field.path === path)?.detail;
  if (!process) return null;
  const isScript = process.script !== undefined && process.script !== null;
  const setKind = (kind: string) => {
    if (kind === "script") {
      const script = process.command?.length ? `${join(process.command)}\n` : "echo hello\n";
      set(["run", "process"], { ...process, command: undefined, script });
    } else {
      set(["run", "process"], {
        ...process,
        script: undefined,
        interpreter: undefined,
        command: ["echo", "hello"],
      });
    }
  };
  return (
    <>
      <div className={style.kind}>
        <SegmentedControl
          aria-label={t("submit.kind")}
          value={isScript ? "script" : "command"}
          onChange={setKind}
          data={[
            { value: "script", label: t("submit.script") },
            { value: "command", label: t("submit.command") },
          ]}
        />
        {isScript && (
          <Interpreter
            value={process.interpreter ?? []}
            onChange={(value) => set(["run", "process", "interpreter"], value)}
          />
        )}
      </div>
      {isScript ? (
        <Textarea
          aria-label={t("submit.script")}
          classNames={{ input: style.code }}
          autosize
          minRows={6}
          maxRows={18}
          spellCheck={false}
          value={process.script ?? ""}
          onChange={(event) => set(["run", "process", "script"], event.currentTarget.value)}
          error={error("run.process.script") ?? error("run.process")}
        />
      ) : (
        <CommandLine
          words={process.command ?? []}
          onChange={(words) => set(["run", "process", "command"], words)}
          error={error("run.process.command") ?? error("run.process")}
        />
      )}
    </>
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
  const given = delays.join(", ");
  const [draft, setDraft] = useState<{ text: string; made: string } | null>(null);
  return (
    <TextInput
      label={t("submit.delays")}
      placeholder="1m, 5m, 10m"
      description={delays.length > 1 ? t("submit.delaysHint") : undefined}
      inputWrapperOrder={["label", "input", "description", "error"]}
      // The typed text is kept as long as it means the same as the spec.
      value={draft?.made === given ? draft.text : given}
      onChange={(event) => {
        const text = event.currentTarget.value;
        const next = splitDurations(text);
        setDraft({ text, made: next.join(", ") });
        onChange(next.length > 0 ? next : undefined);
      }}
      error={error}
      data-testid="delays"
    />
  );
}

const INTERPRETERS: Record<string, string[] | undefined> = {
  sh: undefined,
  bash: ["bash"],
  python: ["python3", "-u"],
  node: ["node"],
};

function Interpreter({
  value,
  onChange,
}: {
  value: readonly string[];
  onChange: (value?: string[]) => void;
}) {
  const { t } = useTranslation();
  const known = Object.entries(INTERPRETERS).find(
    ([, words]) => (words ?? []).join(" ") === value.join(" "),
  )?.[0];
  const data = Object.keys(INTERPRETERS);
  return (
    <Select
      aria-label={t("submit.interpreter")}
      w={130}
      data={known ? data : [...data, value.join(" ")]}
      value={known ?? value.join(" ")}
      onChange={(name) => name !== null && name in INTERPRETERS && onChange(INTERPRETERS[name])}
      allowDeselect={false}
    />
  );
}

function CommandLine(props: {
  words: readonly string[];
  onChange: (words: string[]) => void;
  error?: string;
}) {
  const { t } = useTranslation();
  const given = join(props.words);
  const [draft, setDraft] = useState<{ text: string; made: string } | null>(null);
  // The typed text is kept as long as it means the same as the spec.
  const text = draft && draft.made === given ? draft.text : given;
  return (
    <TextInput
      aria-label={t("submit.command")}
      description={t("submit.commandHint")}
      inputWrapperOrder={["input", "description", "error"]}
      classNames={{ input: style.code }}
      spellCheck={false}
      value={draft && split(draft.text) === null ? draft.text : text}
      error={draft && split(draft.text) === null ? t("submit.openQuote") : props.error}
      onChange={(event) => {
        const words = split(event.currentTarget.value);
        setDraft({ text: event.currentTarget.value, made: words ? join(words) : given });
        if (words) props.onChange(words);
      }}
    />
  );
}

interface KeyValueFieldProps {
  label: string;
  placeholder: string;
  value: Record<string, string>;
  onChange: (value: Record<string, string> | undefined) => void;
  error?: string;
}

/** A field of `NAME=VALUE` lines. */
export function KeyValueField({ label, placeholder, value, onChange, error }: KeyValueFieldProps) {
  const given = Object.entries(value)
    .map(([key, each]) => `${key}=${each}`)
    .join("\n");
  const [draft, setDraft] = useState<{ text: string; made: string } | null>(null);
  return (
    <Textarea
      label={label}
      placeholder={placeholder}
      classNames={{ input: style.code }}
      autosize
      minRows={2}
      spellCheck={false}
      value={draft?.made === given ? draft.text : given}
      error={error}
      onChange={(event) => {
        const text = event.currentTarget.value;
        const pairs = text
          .split("\n")
          .filter((line) => line.includes("="))
          .map(
            (line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1)] as const,
          );
        const next = Object.fromEntries(pairs);
        setDraft({
          text,
          made: Object.entries(next)
            .map(([key, each]) => `${key}=${each}`)
            .join("\n"),
        });
        onChange(pairs.length > 0 ? next : undefined);
      }}
    />
  );
}
