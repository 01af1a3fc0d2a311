/** Form fields of one step. */

import {
  Autocomplete,
  Button,
  MultiSelect,
  NumberInput,
  SegmentedControl,
  Select,
  Switch,
  TagsInput,
  Textarea,
  TextInput,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Trash2 } from "lucide-react";
import { useTranslation } from "react-i18next";

import type { FieldError, JobSpec, JoinRule, Section, StepSpec, WorkflowSpec } from "../../api/schema";
import { suggestedWorkflowsQuery } from "../../api/workflows";
import { stepKindOf } from "../../lib/dag/graph";
import {
  type Change,
  type ListKind,
  toListField,
  LIST_KINDS,
  namesIn,
  parseListField,
  removeStep,
  renameStep,
  stepsOf,
  changeStepKind,
} from "../../lib/steps";
import { SpecForm } from "../submit/SpecForm";
import style from "./form.module.css";

const KINDS = ["job", "workflow", "approval", "wait"] as const;
const JOINS = [
  "all_success",
  "all_failed",
  "all_done",
  "all_done_min_one_success",
  "all_skipped",
  "one_failed",
  "one_success",
  "one_done",
  "none_failed",
  "none_failed_min_one_success",
  "none_skipped",
  "always",
] as const satisfies readonly JoinRule[];

interface Props {
  spec: WorkflowSpec;
  section: Section;
  index: number;
  step: StepSpec;
  set: (path: string[], value: unknown) => void;
  apply: (changes: readonly Change[]) => void;
  fields: readonly FieldError[];
}

export function StepFields({ spec, section, index, step, set, apply, fields }: Props) {
  const { t } = useTranslation();
  const at = [section, String(index)];
  const kind = stepKindOf(step);
  const stepErrors = fields
    .map((field) => ({ ...field, path: relativePath(field.path, `${section}[${index}]`) }))
    .filter((field) => field.path !== null) as FieldError[];
  const error = (path: string) => stepErrors.find((field) => field.path === path)?.detail;
  const setText = (path: string, value: string) =>
    set([...at, path], value.trim() === "" ? undefined : value);
  const others = stepsOf(spec, section).flatMap(({ name }) => (name && name !== step.name ? [name] : []));
  const needs = (step.needs ?? []).filter((need) => others.includes(need));
  return (
    <div className={style.fields}>
      <div className={style.pair}>
        <TextInput
          label={t("submit.name")}
          value={step.name ?? ""}
          onChange={(event) => apply(renameStep(spec, section, index, event.currentTarget.value))}
          error={error("name")}
          data-testid="step-name"
        />
        <MultiSelect
          label={t("step.needs")}
          data={others}
          value={needs}
          onChange={(value) => set([...at, "needs"], value.length > 0 ? value : undefined)}
          error={error("needs")}
          searchable
          data-testid="step-needs"
        />
      </div>
      <SegmentedControl
        aria-label={t("step.kind")}
        value={kind}
        onChange={(value) => apply(changeStepKind(section, index, value))}
        data={KINDS.map((value) => ({ value, label: t(`stepKind.${value}`) }))}
      />
      {kind === "job" && (
        <SpecForm
          inSchedule
          workflowClass={spec.priority_class}
          spec={step.job ?? ({} as JobSpec)}
          set={(path, value) => set([...at, "job", ...path], value)}
          fields={stepErrors
            .filter((field) => field.path.startsWith("job."))
            .map((field) => ({ ...field, path: field.path.slice("job.".length) }))}
        />
      )}
      {kind === "workflow" && (
        <CallFields
          name={step.workflow?.name ?? ""}
          onName={(name) => set([...at, "workflow", "name"], name)}
          error={error("workflow.name") ?? error("workflow")}
        />
      )}
      {kind === "approval" && (
        <TextInput
          label={t("workflow.form.question")}
          placeholder={t("common.optional")}
          value={step.approval?.message ?? ""}
          onChange={(event) => {
            // The object is kept even without a message: it makes the step an approval.
            const message = event.currentTarget.value || undefined;
            set([...at, "approval"], { ...step.approval, message });
          }}
          error={error("approval.message")}
        />
      )}
      {kind === "wait" && (
        <WaitFields step={step} set={(value) => set([...at, "wait"], value)} error={error} />
      )}
      <div className={style.pair}>
        <Select
          label={t("step.join")}
          value={step.join ?? "all_success"}
          onChange={(value) => set([...at, "join"], value === "all_success" ? undefined : value)}
          data={JOINS.map((value) => ({ value, label: t(`join.${value}`) }))}
          allowDeselect={false}
          disabled={needs.length === 0}
          error={error("join")}
        />
        <TextInput
          label={t("step.when")}
          placeholder="steps.load.succeeded > 0"
          classNames={{ input: style.code }}
          value={step.when ?? ""}
          onChange={(event) => setText("when", event.currentTarget.value)}
          error={error("when")}
        />
      </div>
      {(kind === "job" || kind === "workflow") && (
        <ForEachFields
          step={step}
          addedBy={stepsOf(spec, section).flatMap((other) =>
            other.name && other.name !== step.name && stepKindOf(other) === "job" ? [other.name] : [],
          )}
          set={(path, value) => set([...at, "for_each", ...path], value)}
          error={error}
        />
      )}
      {(kind === "job" || kind === "workflow" || (step.wait && "event" in step.wait)) && (
        <TagsInput
          label={t("step.outputs")}
          description={t("workflow.form.outputsHint")}
          placeholder={step.outputs ? undefined : "rows: integer"}
          classNames={{ input: style.code }}
          value={Object.entries(step.outputs ?? {}).map(([name, type]) => `${name}: ${type}`)}
          onChange={(texts) => set([...at, "outputs"], parseOutputTypes(texts))}
          acceptValueOnBlur
          error={stepErrors.find(({ path }) => path === "outputs" || path.startsWith("outputs."))?.detail}
          data-testid="step-outputs"
        />
      )}
      <div className={style.last}>
        <Switch
          label={t("workflow.form.continue")}
          checked={step.continue_on_failure ?? false}
          onChange={(event) => set([...at, "continue_on_failure"], event.currentTarget.checked || undefined)}
        />
        <Button
          variant="subtle"
          color="red"
          size="compact-sm"
          leftSection={<Trash2 size={13} />}
          onClick={() => apply(removeStep(spec, section, index))}
        >
          {t("workflow.form.remove")}
        </Button>
      </div>
    </div>
  );
}

/** Parses output declarations such as `rows: integer`; the type defaults to string. */
function parseOutputTypes(texts: readonly string[]): Record<string, string> | undefined {
  const pairs = texts.map((text) => {
    const [name = "", type = "string"] = text.split(":").map((part) => part.trim());
    return [name, type] as const;
  });
  return pairs.length > 0 ? Object.fromEntries(pairs) : undefined;
}

/** Returns the part of a path after `at`; null for another path. */
function relativePath(path: string, at: string): string | null {
  if (path === at) return "";
  return path.startsWith(`${at}.`) ? path.slice(at.length + 1) : null;
}

function CallFields(props: { name: string; onName: (name: string) => void; error: string | undefined }) {
  const { t } = useTranslation();
  const workflows = useQuery(suggestedWorkflowsQuery(props.name));
  return (
    <Autocomplete
      label={t("run.workflow")}
      value={props.name}
      onChange={props.onName}
      data={[...new Set(workflows.data?.items.map((workflow) => workflow.name))]}
      error={props.error}
    />
  );
}

const WAIT_KINDS = ["for", "until", "event"] as const;
type WaitKind = (typeof WAIT_KINDS)[number];

function WaitFields(props: {
  step: StepSpec;
  set: (value: unknown) => void;
  error: (path: string) => string | undefined;
}) {
  const { t } = useTranslation();
  const wait = (props.step.wait ?? {}) as { for?: string; until?: string; event?: { name: string } };
  const kind: WaitKind = "event" in wait ? "event" : "until" in wait ? "until" : "for";
  const text = wait.event?.name ?? wait.until ?? wait.for ?? "";
  const write = (kind: WaitKind, text: string) =>
    props.set(kind === "event" ? { event: { ...wait.event, name: text } } : { [kind]: text });
  const examples = { for: "10m", until: "${{ params.time }}", event: "paid" };
  return (
    <div className={style.pair}>
      <Select
        label={t("workflow.form.wait")}
        value={kind}
        onChange={(value) => write(value as WaitKind, examples[value as WaitKind])}
        data={WAIT_KINDS.map((value) => ({ value, label: t(`workflow.form.waits.${value}`) }))}
        allowDeselect={false}
      />
      <TextInput
        label={t(`workflow.form.waits.${kind}`)}
        value={text}
        onChange={(event) => write(kind, event.currentTarget.value)}
        error={props.error(`wait.${kind}`) ?? props.error("wait.event.name") ?? props.error("wait")}
      />
    </div>
  );
}

function ForEachFields(props: {
  step: StepSpec;
  /** Steps whose tasks can add elements. */
  addedBy: readonly string[];
  set: (path: string[], value: unknown) => void;
  error: (path: string) => string | undefined;
}) {
  const { t } = useTranslation();
  const { kind, text } = toListField(props.step.for_each);
  const starts: Record<ListKind, string> = {
    none: "",
    items: "eu\ncn",
    list: "params.items",
    shards: "8",
    workers: "",
    added_by: "",
  };
  const choose = (next: ListKind) =>
    next === "none" ? props.set([], undefined) : props.set(["over"], parseListField(next, starts[next]));
  const write = (text: string) => props.set(["over"], parseListField(kind, text));
  const error =
    props.error(`for_each.over.${kind}`) ?? props.error("for_each.over") ?? props.error("for_each");
  const label = t(`workflow.form.lists.${kind}`);
  return (
    <>
      <div className={style.pair}>
        <Select
          label={t("workflow.form.each")}
          value={kind}
          onChange={(value) => choose(value as ListKind)}
          data={LIST_KINDS.map((value) => ({ value, label: t(`workflow.form.lists.${value}`) }))}
          allowDeselect={false}
          data-testid="step-each"
        />
        {kind !== "none" && (
          <NumberInput
            label={t("workflow.form.parallel")}
            placeholder={t("workflow.form.all")}
            min={1}
            value={props.step.for_each?.max_parallel ?? ""}
            onChange={(value) => props.set(["max_parallel"], value === "" ? undefined : Number(value))}
            error={props.error("for_each.max_parallel")}
          />
        )}
      </div>
      {kind === "items" && (
        <Textarea
          label={label}
          autosize
          minRows={2}
          maxRows={8}
          value={text}
          onChange={(event) => write(event.currentTarget.value)}
          error={error}
        />
      )}
      {kind === "list" && (
        <TextInput
          label={label}
          classNames={{ input: style.code }}
          value={text}
          onChange={(event) => write(event.currentTarget.value)}
          error={error}
        />
      )}
      {kind === "added_by" && (
        <MultiSelect
          label={t("workflow.form.adders")}
          data={props.addedBy}
          value={namesIn(text)}
          onChange={(names) => write(names.join(", "))}
          error={error ?? props.error("for_each.over.added_by[0]")}
          searchable
          data-testid="step-adders"
        />
      )}
      {kind === "shards" && (
        <NumberInput
          label={label}
          min={1}
          value={Number(text)}
          onChange={(value) => write(String(value))}
          error={error}
        />
      )}
    </>
  );
}
