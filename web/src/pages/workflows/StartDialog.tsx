/** Starts a run: parameters, and a preview of the plan. */

import { Button, Group, Modal, NumberInput, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Play } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../../api/errors";
import { planRun, startRun } from "../../api/workflows";
import type { RunPlan, Workflow } from "../../api/schema";
import { initialFields, type FieldTexts, parseFields } from "../../lib/parameters";
import { notify } from "../../ui/notify";
import { ErrorBox } from "../../ui/kit";
import { ParameterField } from "./ParameterField";
import style from "./workflows.module.css";
import { useRequestKey } from "../../ui/useRequestKey";

const PLAN_STEPS_SHOWN = 200;

interface Props {
  workflow: Pick<Workflow, "id" | "name" | "parameters">;
  /** Initial values of the fields, instead of the defaults. */
  values?: Record<string, unknown>;
  onClose: () => void;
}

export function StartDialog({ workflow, values: start, onClose }: Props) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const { id, name, parameters = {} } = workflow;
  const [fields, setFields] = useState<FieldTexts>(() => initialFields(parameters, start));
  const [note, setNote] = useState("");
  const [priority, setPriority] = useState<number | string>("");
  const [showErrors, setShowErrors] = useState(false);
  const [busy, setBusy] = useState(false);
  const [apiError, setApiError] = useState<ApiError | null>(null);
  const requestKey = useRequestKey();
  const { values, problems } = parseFields(parameters, fields);
  const hasProblems = Object.keys(problems).length > 0;

  const [debounced] = useDebouncedValue(JSON.stringify({ parameters: values }), 300);
  const plan = useQuery({
    queryKey: ["plan", id, debounced],
    queryFn: ({ signal }) => planRun(id, JSON.parse(debounced) as object, signal),
    enabled: !hasProblems,
    retry: false,
    staleTime: 10_000,
  });
  const fieldErrors = [
    ...(plan.error && !hasProblems ? ApiError.from(plan.error).fields : []),
    ...(apiError?.fields ?? []),
  ];
  const errorOf = (parameter: string) => {
    const problem = problems[parameter];
    if (problem && (showErrors || problem !== "missing")) return t(`workflow.problem.${problem}`);
    const parameterErrors = fieldErrors.filter(({ path }) =>
      [parameter, `parameters.${parameter}`].some((at) => path === at || path.startsWith(`${at}.`)),
    );
    return parameterErrors.length > 0 ? parameterErrors.map(({ detail }) => detail).join("; ") : undefined;
  };

  const go = async () => {
    setShowErrors(true);
    if (hasProblems) return;
    setBusy(true);
    setApiError(null);
    try {
      const more = { ...(note && { note }), ...(priority !== "" && { priority: Number(priority) }) };
      const body = { parameters: values, ...more };
      const run = await startRun(id, body, requestKey(JSON.stringify(body)));
      notify(t("workflow.started", { name, number: run.number }));
      onClose();
      void navigate({ to: "/runs/$id", params: { id: run.id } });
    } catch (error) {
      setApiError(ApiError.from(error));
      setBusy(false);
    }
  };

  return (
    <Modal opened onClose={onClose} title={t("workflow.startTitle", { name })} size={560}>
      <form
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          void go();
        }}
      >
        <div className={style.form} data-testid="parameters">
          {Object.keys(parameters).length === 0 && <p className="quiet">{t("workflow.noParameters")}</p>}
          {Object.entries(parameters).map(([each, parameter]) => (
            <ParameterField
              key={each}
              name={each}
              parameter={parameter}
              value={fields[each] ?? ""}
              error={errorOf(each)}
              onChange={(value) => setFields((fields) => ({ ...fields, [each]: value }))}
            />
          ))}
          <div className={style.pair}>
            <TextInput
              label={t("workflow.note")}
              placeholder={t("common.optional")}
              value={note}
              onChange={(event) => setNote(event.currentTarget.value)}
            />
            <NumberInput
              label={t("submit.priority")}
              placeholder={t("workflow.priorityHint")}
              value={priority}
              onChange={setPriority}
              min={0}
              max={100}
              allowDecimal={false}
            />
          </div>
          <Plan plan={plan.data} />
          {apiError && <ErrorBox error={apiError} />}
          {!apiError && plan.error && !hasProblems && fieldErrors.length === 0 && (
            <ErrorBox error={plan.error} />
          )}
        </div>
        <Group justify="flex-end" mt="md" gap="xs">
          <Button variant="default" onClick={onClose}>
            {t("common.back")}
          </Button>
          <Button type="submit" loading={busy} leftSection={<Play size={14} />}>
            {t("workflow.start")}
          </Button>
        </Group>
      </form>
    </Modal>
  );
}

/** The planned steps in order, with their values. */
function Plan({ plan }: { plan: RunPlan | undefined }) {
  const { t } = useTranslation();
  if (!plan) return null;
  return (
    <details className={style.plan} data-testid="plan">
      <summary>{t("workflow.plan", { count: plan.steps.length })}</summary>
      <ol>
        {plan.steps.slice(0, PLAN_STEPS_SHOWN).map((step) => (
          <li key={step.name}>
            <span className="num quiet">{step.section === "steps" ? step.level + 1 : ""}</span>
            <span className="clip">
              {step.name}
              {step.total != null && <span className="quiet num"> ×{step.total.toLocaleString()}</span>}
            </span>
            <span className="quiet clip">
              {step.command ? <code>{step.command.join(" ")}</code> : t(`stepKind.${step.kind}`)}
            </span>
          </li>
        ))}
      </ol>
      {plan.steps.length > PLAN_STEPS_SHOWN && (
        <p className="quiet">{t("workflow.planMore", { count: plan.steps.length - PLAN_STEPS_SHOWN })}</p>
      )}
    </details>
  );
}
