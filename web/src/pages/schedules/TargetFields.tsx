/** The target of a schedule: a job or a workflow. */

import { Autocomplete, SegmentedControl } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import type { FieldError, JobSpec, ScheduleSpec } from "../../api/schema";
import { suggestedWorkflowsQuery, workflowQuery } from "../../api/workflows";
import { parseCallFields, type FieldTexts, initialFields } from "../../lib/parameters";
import { SpecForm } from "../submit/SpecForm";
import { ParameterField } from "../workflows/ParameterField";
import style from "./edit.module.css";

interface Props {
  spec: ScheduleSpec;
  set: (path: string[], value: unknown) => void;
  fields: readonly FieldError[];
}

export function TargetFields({ spec, set, fields }: Props) {
  const { t } = useTranslation();
  const choose = (what: string) => {
    set(["job"], undefined);
    set(["workflow"], what === "workflow" ? { name: "" } : undefined);
  };
  return (
    <>
      <SegmentedControl
        aria-label={t("schedule.whatRuns")}
        value={spec.workflow ? "workflow" : "job"}
        onChange={choose}
        data={[
          { value: "job", label: t("schedule.startsJob") },
          { value: "workflow", label: t("schedule.startsWorkflow") },
        ]}
      />
      {spec.workflow ? (
        <>
          <WorkflowField
            name={spec.workflow.name}
            onName={(name) => set(["workflow", "name"], name)}
            error={fields.find((field) => field.path === "workflow.name")?.detail}
          />
          <Parameters
            key={`${spec.namespace}/${spec.workflow.name}`}
            namespace={spec.namespace}
            call={spec.workflow}
            set={(values) => set(["workflow", "parameters"], values)}
            fields={fields}
          />
        </>
      ) : (
        <SpecForm
          inSchedule
          guarantee={spec.guarantee}
          spec={spec.job ?? ({} as JobSpec)}
          set={(path, value) => set(["job", ...path], value)}
          fields={fields
            .filter((field) => field.path.startsWith("job."))
            .map((field) => ({ ...field, path: field.path.slice("job.".length) }))}
        />
      )}
    </>
  );
}

interface ParametersProps {
  namespace: string | undefined;
  call: NonNullable<ScheduleSpec["workflow"]>;
  set: (values: Record<string, unknown> | undefined) => void;
  fields: readonly FieldError[];
}

/** Parameters that each firing passes to the workflow, as in the start dialog. */
function Parameters({ namespace, call, set, fields }: ParametersProps) {
  const { t } = useTranslation();
  const [name] = useDebouncedValue(call.name, 300);
  const found = useQuery({ ...workflowQuery(name, namespace), enabled: name !== "", retry: false });
  const declared = name === call.name ? (found.data?.parameters ?? {}) : {};
  const [edited, setEdited] = useState<FieldTexts>({});
  const shownFields = { ...initialFields(declared, call.parameters), ...edited };
  const { problems } = parseCallFields(declared, shownFields);
  if (Object.keys(declared).length === 0) return null;
  const change = (parameter: string, value: string) => {
    const next = { ...edited, [parameter]: value };
    setEdited(next);
    const { values } = parseCallFields(declared, { ...initialFields(declared, call.parameters), ...next });
    // Unknown parameters are kept: the server reports the error.
    const unknown = Object.entries(call.parameters ?? {}).filter(([each]) => !(each in declared));
    const all = { ...Object.fromEntries(unknown), ...values };
    set(Object.keys(all).length > 0 ? all : undefined);
  };
  const errorOf = (parameter: string) => {
    const problem = problems[parameter];
    if (problem && problem !== "missing") return t(`workflow.problem.${problem}`);
    const at = `workflow.parameters.${parameter}`;
    return fields.find(({ path }) => path === at || path.startsWith(`${at}.`))?.detail;
  };
  return (
    <fieldset className={style.parameters} data-testid="schedule-parameters">
      <legend>{t("schedule.parameters")}</legend>
      <p className="quiet">{t("schedule.parametersHint", { example: "${{ firing.scheduled_for }}" })}</p>
      {Object.entries(declared).map(([each, parameter]) => (
        <ParameterField
          key={each}
          name={each}
          parameter={parameter}
          value={shownFields[each] ?? ""}
          error={errorOf(each)}
          onChange={(value) => change(each, value)}
          allowsReferences
        />
      ))}
    </fieldset>
  );
}

interface FieldProps {
  name: string;
  onName: (name: string) => void;
  error: string | undefined;
}

function WorkflowField({ name, onName, error }: FieldProps) {
  const { t } = useTranslation();
  const found = useQuery(suggestedWorkflowsQuery(name));
  return (
    <Autocomplete
      label={t("schedule.workflow")}
      description={t("schedule.workflowHint")}
      value={name}
      onChange={onName}
      data={[...new Set(found.data?.items.map((workflow) => workflow.name))]}
      error={error}
      data-testid="workflow"
    />
  );
}
