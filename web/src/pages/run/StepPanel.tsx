/** Everything about one step of a run: why it stands where it stands, its data, and what can be done with it. */

import { Button, Menu } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ChevronDown, HelpCircle, RotateCcw, X } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import type { RunStep, StepSpec, WorkflowRun } from "../../api/schema";
import { type Mark, markStep, stepsQuery, stepWhyQuery } from "../../api/workflows";
import { SECTIONS } from "../../lib/dag/graph";
import { isMarkable, isRunEnded, isStepEnded, approvalMessage } from "../../lib/runs";
import { translateMessage } from "../../lib/runWords";
import { toYaml } from "../../lib/spec";
import { runAction } from "../../ui/act";
import { ConfirmDialog } from "../../ui/Ask";
import { CodeHighlight } from "../../ui/Code";
import { Card, KeyValueList } from "../../ui/kit";
import { StepBadge } from "../../ui/Status";
import { RelativeTime, Elapsed } from "../../ui/Time";
import job from "../job/job.module.css";
import { Values } from "./About";
import { Answers, waitsForApproval } from "./Approval";
import { Items } from "./Items";
import { RetryDialog } from "./RunActions";
import { StepReasonWords } from "./StepReasonWords";
import style from "./run.module.css";

interface Props {
  run: WorkflowRun;
  step: RunStep;
  /** Whose log shows. */
  job: string | undefined;
  onChoose: (step: string | undefined) => void;
  onJob: (job: string) => void;
}

export function StepPanel({ run, step, job, onChoose, onJob }: Props) {
  const { t } = useTranslation();
  const spec = SECTIONS.flatMap((section) => run.spec?.[section] ?? []).find(
    ({ name }) => name === step.name,
  );
  return (
    <div className={style.side} data-testid="step-panel">
      <Card
        title={
          <span className={style.stepTitle}>
            <span className="clip">{step.name}</span>
            <StepBadge status={step.status} />
          </span>
        }
        aside={
          <Button
            variant="subtle"
            size="compact-xs"
            onClick={() => onChoose(undefined)}
            aria-label={t("common.close")}
          >
            <X size={14} />
          </Button>
        }
      >
        {spec?.description && <p className={style.about}>{spec.description}</p>}
        <StepActions run={run} step={step} />
        {!isRunEnded(run.status) && (!isStepEnded(step.status) || run.tries?.next_at) && (
          <Why run={run} step={step} />
        )}
        <StepFacts run={run} step={step} spec={spec} job={job} onChoose={onChoose} />
      </Card>
      {step.for_each && <Items run={run} step={step} job={job} onJob={onJob} />}
      <Values title={t("run.output")} value={step.output} />
      {spec && (
        <Card flush>
          <details className={style.definition}>
            <summary>{t("run.tabs.definition")}</summary>
            <CodeHighlight text={toYaml(spec)} />
          </details>
        </Card>
      )}
    </div>
  );
}

function StepFacts({
  run,
  step,
  spec,
  job,
  onChoose,
}: Omit<Props, "onJob"> & { spec: StepSpec | undefined }) {
  const { t } = useTranslation();
  const { said } = step;
  const needs = step.needs ?? [];
  return (
    <KeyValueList
      rows={[
        step.cause && isStepEnded(step.status) ? [t("step.cause"), t(`stepCause.${step.cause}`)] : null,
        step.message
          ? [
              t("job.result.message"),
              <span key="" className={style.message}>
                {translateMessage(step.message, t)}
              </span>,
            ]
          : null,
        said
          ? [
              t("step.said"),
              <span key="">
                {said.by}, <RelativeTime at={said.at} />
                {said.note && (
                  <>
                    : <q>{said.note}</q>
                  </>
                )}
              </span>,
            ]
          : null,
        [t("step.kind"), t(`stepKind.${step.kind}`)],
        step.section !== "steps" && [t("run.facts.section"), t(`section.${step.section}`)],
        needs.length > 0 && [t("step.needs"), <Needs key="" run={run} needs={needs} onChoose={onChoose} />],
        needs.length > 0 && step.join !== "all_success" && [t("step.join"), t(`join.${step.join}`)],
        spec?.when ? [t("step.when"), <code key="">{spec.when}</code>] : null,
        step.started_at ? [t("job.facts.started"), <RelativeTime key="" at={step.started_at} />] : null,
        step.started_at
          ? [
              isStepEnded(step.status) ? t("job.facts.took") : t("job.facts.soFar"),
              <Elapsed
                key=""
                from={step.started_at}
                to={isStepEnded(step.status) ? (step.finished_at ?? step.started_at) : null}
              />,
            ]
          : null,
        step.wake_at && !isStepEnded(step.status) ? [t("step.wakes"), <RelativeTime key="" at={step.wake_at} />] : null,
        job
          ? [
              t("step.job"),
              <Link key="" to="/jobs/$id" params={{ id: job }} className="mono">
                …{job.slice(-8)}
              </Link>,
            ]
          : null,
        step.called
          ? [
              t("step.called"),
              <Link key="" to="/runs/$id" params={{ id: step.called }} className="mono">
                …{step.called.slice(-8)}
              </Link>,
            ]
          : null,
      ]}
    />
  );
}

const NEEDS_SHOWN = 12;

function Needs({
  run,
  needs,
  onChoose,
}: {
  run: WorkflowRun;
  needs: readonly string[];
  onChoose: (step: string) => void;
}) {
  const { t } = useTranslation();
  const steps = useQuery({ ...stepsQuery(run.id), enabled: false }).data?.steps ?? [];
  const statusOf = (name: string) => steps.find((step) => step.name === name)?.status ?? "pending";
  return (
    <ul className={style.needs}>
      {needs.slice(0, NEEDS_SHOWN).map((name) => (
        <li key={name}>
          <button type="button" className={style.linkish} onClick={() => onChoose(name)}>
            {name}
          </button>{" "}
          <StepBadge status={statusOf(name)} plain />
        </li>
      ))}
      {needs.length > NEEDS_SHOWN && (
        <li className="quiet">{t("step.more", { count: needs.length - NEEDS_SHOWN })}</li>
      )}
    </ul>
  );
}

function Why({ run, step }: { run: WorkflowRun; step: RunStep }) {
  const { t } = useTranslation();
  const { data } = useQuery({ ...stepWhyQuery(run.id, step.name), refetchInterval: 5_000 });
  // How it ended stands among the facts.
  const reasons = data?.reasons.filter(({ reason }) => reason !== "over") ?? [];
  if (reasons.length === 0) return null;
  return (
    <section className={`${job.why} ${style.why}`} aria-label={t("why.title")} data-testid="step-why">
      <HelpCircle size={16} aria-hidden />
      <div>
        {reasons.map((reason, i) => (
          <div key={i} data-first={i === 0 || undefined}>
            <StepReasonWords reason={reason} />
          </div>
        ))}
      </div>
    </section>
  );
}

type Dialog = { act: "retry" } | { act: "mark"; status: Mark };
const MARKS = ["succeeded", "failed", "skipped"] as const satisfies readonly Mark[];

function StepActions({ run, step }: { run: WorkflowRun; step: RunStep }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState<Dialog | null>(null);
  const steps = useQuery({ ...stepsQuery(run.id), enabled: false }).data?.steps ?? [];
  const close = () => setOpen(null);
  const isOver = isRunEnded(run.status);
  const asks = waitsForApproval(step);
  const question = asks ? approvalMessage(run, step) : null;
  const mayMark = !isOver && isMarkable(step);
  const mayRetry = isOver && step.section === "steps";
  if (!asks && !mayMark && !mayRetry) return null;
  const { name } = step;
  return (
    <>
      {question && <q className={style.question}>{question}</q>}
      <div className={style.acts}>
        {asks && <Answers run={run} step={step} />}
        {mayMark && (
          <Menu position="bottom-start">
            <Menu.Target>
              <Button variant="default" rightSection={<ChevronDown size={13} />}>
                {t("step.mark")}
              </Button>
            </Menu.Target>
            <Menu.Dropdown>
              {MARKS.map((status) => (
                <Menu.Item key={status} onClick={() => setOpen({ act: "mark", status })}>
                  <StepBadge status={status} plain />
                </Menu.Item>
              ))}
            </Menu.Dropdown>
          </Menu>
        )}
        {mayRetry && (
          <Button
            variant="default"
            leftSection={<RotateCcw size={13} />}
            onClick={() => setOpen({ act: "retry" })}
          >
            {t("step.retryFrom")}
          </Button>
        )}
      </div>
      {open?.act === "mark" && (
        <ConfirmDialog
          title={t("step.markTitle", { name, status: t(`stepStatus.${open.status}`) })}
          text={t("step.markText")}
          field={{ label: t("workflow.note") }}
          confirm={t("step.mark")}
          onConfirm={async (note) =>
            void (await runAction(() => markStep(run.id, name, open.status, note), t("step.marked", { name })))
          }
          onClose={close}
        />
      )}
      {open?.act === "retry" && <RetryDialog run={run} steps={steps} from={name} onClose={close} />}
    </>
  );
}
