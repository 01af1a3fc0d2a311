/** Two runs: times, parameters, steps side by side, and the logs of a step. */

import { NativeSelect, VisuallyHidden } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import type { RunStep, WorkflowRun } from "../../api/schema";
import { runQuery, stepsQuery } from "../../api/workflows";
import { type CompareSearch, differingStep, pairSteps, type StepPair, stepDuration } from "../../lib/compare";
import { formatDuration } from "../../lib/quantities";
import { isStepEnded, runTone, stepTone, totalOf } from "../../lib/runs";
import { transitionDetail } from "../../lib/serverMessages";
import { Card, ErrorBox, Loading } from "../../ui/kit";
import { RunBadge, StepIcon } from "../../ui/Status";
import { AbsoluteTime } from "../../ui/Time";
import style from "./compare.module.css";
import { Differences } from "./Differences";
import { LogDiff } from "./LogDiff";
import { Delta, ScaledBar, SideTable, type SideRow, TimeBars } from "./SideTable";

interface Props {
  a: string;
  b: string;
  search: CompareSearch;
  onChange: (part: CompareSearch) => void;
}

export function RunComparison({ a: idA, b: idB, search, onChange }: Props) {
  const { t } = useTranslation();
  const a = useSide(idA);
  const b = useSide(idB);
  const error = a.error ?? b.error;
  if (!a.side || !b.side) return error ? <ErrorBox error={error} /> : <Loading rows={8} />;
  const sides = [a.side, b.side] as const;
  const of = <T,>(value: (side: Side) => T) => [value(sides[0]), value(sides[1])] as const;
  const pairs = pairSteps(a.side.steps, b.side.steps);
  const withLogs = pairs.filter(({ a, b }) => a?.job_id && b?.job_id);
  const compared = withLogs.find(({ name }) => name === (search.step ?? differingStep(pairs))) ?? withLogs[0];
  const rows: SideRow[] = [
    { label: t("jobs.columns.status"), shown: of(({ run }) => <RunBadge status={run.status} />) },
    {
      label: t("job.result.title"),
      shown: of(({ run }) => run.last_transition && transitionDetail(run.last_transition, t)),
    },
    { label: t("compare.created"), shown: of(({ run }) => <AbsoluteTime key="" at={run.created_at} />) },
    {
      label: t("job.details.started"),
      shown: of(({ run }) => run.started_at && <AbsoluteTime key="" at={run.started_at} />),
    },
    { label: t("job.details.waited"), numbers: of(({ waited }) => waited), format: formatDuration },
    { label: t("job.details.took"), numbers: of(({ ran }) => ran), format: formatDuration },
    { label: t("workflow.columns.steps"), numbers: of(({ run }) => totalOf(run.steps)), format: String },
    { label: t("schedule.generation"), shown: of(({ run }) => run.generation || null) },
  ];
  const heads = of(({ run }) => (
    <Link key="" to="/runs/$id" params={{ id: run.id }}>
      {run.workflow} <span className="num">{run.number > 0 ? `#${run.number}` : `…${run.id.slice(-8)}`}</span>
    </Link>
  ));
  return (
    <>
      <Card title={t("compare.summary")} flush>
        <SideTable heads={heads} rows={rows} />
        <TimeBars
          sides={of(({ waited, ran, run }) => ({
            waited: waited ?? 0,
            ran: ran ?? 0,
            tone: runTone(run.status),
          }))}
        />
      </Card>
      <Differences
        title={t("workflow.parameters")}
        same={t("compare.sameParameters")}
        values={of(({ run }) => run.parameters)}
      />
      <Steps pairs={pairs} selected={compared?.name} onSelect={(step) => onChange({ step })} />
      <Differences
        title={t("workflow.tabs.definition")}
        same={t("compare.sameDefinition")}
        values={of(({ run }) => definition(run))}
      />
      <Differences title={t("job.result.output")} values={of(({ run }) => run.output)} />
      {compared?.a?.job_id && compared.b?.job_id && (
        <LogDiff
          key={compared.name}
          sides={[logOf(compared.a), logOf(compared.b)]}
          ignoresNumbers={search.numbers === "ignore"}
          onIgnore={(ignores) => onChange({ numbers: ignores ? "ignore" : undefined })}
          choice={
            <NativeSelect
              size="xs"
              aria-label={t("compare.step")}
              value={compared.name}
              onChange={(event) => onChange({ step: event.currentTarget.value })}
              data={withLogs.map(({ name }) => name)}
            />
          }
        />
      )}
    </>
  );
}

function logOf(step: RunStep) {
  return { job: step.job_id ?? "", execution: undefined, isEnded: isStepEnded(step.status) };
}

/** Returns the definition with its steps by name, so that a moved step is no difference. */
function definition({ spec }: WorkflowRun): object | null {
  if (!spec) return null;
  const byName = (steps: ReadonlyArray<{ name: string }> | undefined) =>
    steps && Object.fromEntries(steps.map((step) => [step.name, step]));
  const { steps, on_failure, finally: last, ...rest } = spec;
  return { ...rest, steps: byName(steps), on_failure: byName(on_failure), finally: byName(last) };
}

interface StepsProps {
  pairs: readonly StepPair[];
  selected: string | undefined;
  onSelect: (step: string) => void;
}

/** The steps of both runs with their durations on one scale. */
function Steps({ pairs, selected, onSelect }: StepsProps) {
  const { t } = useTranslation();
  const longest = Math.max(1, ...pairs.flatMap(({ a, b }) => [stepDuration(a) ?? 0, stepDuration(b) ?? 0]));
  return (
    <Card title={t("run.tabs.steps")} flush>
      <div className={style.scroller}>
        <table className={style.sides} aria-label={t("run.tabs.steps")} data-testid="steps">
          <thead>
            <tr>
              <th scope="col">{t("compare.step")}</th>
              <th scope="col">A</th>
              <th scope="col">B</th>
              <th scope="col">{t("compare.difference")}</th>
            </tr>
          </thead>
          <tbody>
            {pairs.map(({ name, a, b }) => (
              <tr key={name} data-selected={name === selected || undefined}>
                <th scope="row">
                  {a?.job_id && b?.job_id ? (
                    <button type="button" className={style.step} onClick={() => onSelect(name)}>
                      {name}
                    </button>
                  ) : (
                    name
                  )}
                </th>
                {[a, b].map((step, i) => (
                  <td key={i}>
                    {step ? <StepCell step={step} longest={longest} /> : <span className="quiet">–</span>}
                  </td>
                ))}
                <td className="num">
                  <Delta numbers={[stepDuration(a), stepDuration(b)]} format={formatDuration} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function StepCell({ step, longest }: { step: RunStep; longest: number }) {
  const { t } = useTranslation();
  const duration = stepDuration(step);
  return (
    <span className={style.stepCell}>
      <StepIcon status={step.status} />
      {duration !== null && <VisuallyHidden>{t(`stepStatus.${step.status}`)}</VisuallyHidden>}
      {duration !== null && <ScaledBar value={duration} longest={longest} tone={stepTone(step.status)} />}
      <span className="num">
        {duration === null ? t(`stepStatus.${step.status}`) : formatDuration(duration)}
      </span>
    </span>
  );
}

interface Side {
  run: WorkflowRun;
  steps: readonly RunStep[];
  waited: number | null;
  ran: number | null;
}

function useSide(id: string): { side: Side | null; error: unknown } {
  const run = useQuery(runQuery(id));
  const steps = useQuery(stepsQuery(id));
  const error = run.error ?? steps.error;
  if (!run.data || !steps.data) return { side: null, error };
  const { created_at, started_at, finished_at } = run.data;
  const since = (from: string, to: string) => Math.max(0, Date.parse(to) - Date.parse(from));
  return {
    side: {
      run: run.data,
      steps: steps.data.steps,
      waited: started_at ? since(created_at, started_at) : null,
      ran: started_at && finished_at ? since(started_at, finished_at) : null,
    },
    error,
  };
}
