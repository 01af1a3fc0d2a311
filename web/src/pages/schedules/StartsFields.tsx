/** What a schedule starts: a job, or a workflow. */

import { Autocomplete, SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";

import type { FieldError, JobSpec, ScheduleSpec } from "../../api/schema";
import { suggestedWorkflowsQuery } from "../../api/workflows";
import { SpecForm } from "../submit/SpecForm";

interface Props {
  spec: ScheduleSpec;
  set: (path: string[], value: unknown) => void;
  fields: readonly FieldError[];
}

export function StartsFields({ spec, set, fields }: Props) {
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
        <WorkflowField
          name={spec.workflow.name}
          onName={(name) => set(["workflow", "name"], name)}
          error={fields.find((field) => field.path === "workflow.name")?.detail}
        />
      ) : (
        <SpecForm
          inSchedule
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
