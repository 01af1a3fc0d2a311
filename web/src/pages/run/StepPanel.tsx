/** Details of one step of a run: waiting reasons, data and actions. */

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
import { translateMessage } from "../../lib/serverMessages";
import { toYaml } from "../../lib/spec";
import { useCan } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { CodeHighlight } from "../../ui/Code";
import { Card, KeyValueList } from "../../ui/kit";
import { StepBadge } from "../../ui/Status";
import { RelativeTime, Elapsed } from "../../ui/Time";
import job from "../job/job.module.css";
import { JsonCard } from "./RunSummary";
import { ApprovalActions, waitsForApproval } from "./Approval";
import { Elements } from "./Elements";
import { RetryDialog } from "./RunActions";
import { StepReasonText } from "./StepReasonText";
import style from "./run.module.css";

interface Props {
  run: WorkflowRun;
  step: RunStep;
  /** Job whose log is shown. */
  job: string | undefined;
  onSelect: (step: string | undefined) => void;
  onSelectJob: (job: string) => void;
}

export function StepPanel({ run, step, job, onSelect, onSelectJob }: Props) {
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
            onClick={() => onSelect(undefined)}
            aria-label={t("common.close")}
          >
            <X size={14} />
          </Button>
        }
      >
        {spec?.description && <p className={style.about}>{spec.description}</p>}
        <StepActions run={run} step={step} />
        {!isRunEnded(run.status) && (!isStepEnded(step.status) || run.attempt?.next_at) && (
          <StepWaitingReasons run={run} step={step} />
        )}
        <StepSummary run={run} step={step} spec={spec} job={job} onSelect={onSelect} />
      </Card>
      {step.for_each && <Elements run={run} step={step} job={job} onSelectJob={onSelectJob} />}
      <JsonCard title={t("run.output")} value={step.output} />
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

function StepSummary({
  run,
  step,
  spec,
  job,
  onSelect,
}: Omit<Props, "onSelectJob"> & { spec: StepSpec | undefined }) {
  const { t } = useTranslation();
  const { decision } = step;
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
        decision
          ? [
              t("step.decision"),
              <span key="">
                {decision.by}, <RelativeTime at={decision.at} />
                {decision.note && (
                  <>
                    : <q>{decision.note}</q>
                  </>
                )}
              </span>,
            ]
          : null,
        [t("step.kind"), t(`stepKind.${step.kind}`)],
        step.section !== "steps" && [t("run.details.section"), t(`section.${step.section}`)],
        needs.length > 0 && [
          t("step.needs"),
          <UpstreamSteps key="" run={run} needs={needs} onSelect={onSelect} />,
        ],
        needs.length > 0 && step.join !== "all_success" && [t("step.join"), t(`join.${step.join}`)],
        spec?.when ? [t("step.when"), <code key="">{spec.when}</code>] : null,
        step.started_at ? [t("job.details.started"), <RelativeTime key="" at={step.started_at} />] : null,
        step.started_at
          ? [
              isStepEnded(step.status) ? t("job.details.took") : t("job.details.soFar"),
              <Elapsed
                key=""
                from={step.started_at}
                to={isStepEnded(step.status) ? (step.finished_at ?? step.started_at) : null}
              />,
            ]
          : null,
        step.wake_at && !isStepEnded(step.status)
          ? [t("step.resumesAt"), <RelativeTime key="" at={step.wake_at} />]
          : null,
        job
          ? [
              t("step.job"),
              <Link key="" to="/jobs/$id" params={{ id: job }} className="mono">
                …{job.slice(-8)}
              </Link>,
            ]
          : null,
        step.called_run_id
          ? [
              t("step.called"),
              <Link key="" to="/runs/$id" params={{ id: step.called_run_id }} className="mono">
                …{step.called_run_id.slice(-8)}
              </Link>,
            ]
          : null,
      ]}
    />
  );
}

const UPSTREAM_SHOWN = 12;

function UpstreamSteps({
  run,
  needs,
  onSelect,
}: {
  run: WorkflowRun;
  needs: readonly string[];
  onSelect: (step: string) => void;
}) {
  const { t } = useTranslation();
  const steps = useQuery({ ...stepsQuery(run.id), enabled: false }).data?.steps ?? [];
  const statusOf = (name: string) => steps.find((step) => step.name === name)?.status ?? "pending";
  return (
    <ul className={style.needs}>
      {needs.slice(0, UPSTREAM_SHOWN).map((name) => (
        <li key={name}>
          <button type="button" className={style.linkish} onClick={() => onSelect(name)}>
            {name}
          </button>{" "}
          <StepBadge status={statusOf(name)} plain />
        </li>
      ))}
      {needs.length > UPSTREAM_SHOWN && (
        <li className="quiet">{t("step.more", { count: needs.length - UPSTREAM_SHOWN })}</li>
      )}
    </ul>
  );
}

function StepWaitingReasons({ run, step }: { run: WorkflowRun; step: RunStep }) {
  const { t } = useTranslation();
  const { data } = useQuery({ ...stepWhyQuery(run.id, step.name), refetchInterval: 5_000 });
  // The summary shows how the step ended.
  const reasons = data?.reasons.filter(({ reason }) => reason !== "ended") ?? [];
  if (reasons.length === 0) return null;
  return (
    <section className={`${job.why} ${style.why}`} aria-label={t("why.title")} data-testid="step-why">
      <HelpCircle size={16} aria-hidden />
      <div>
        {reasons.map((reason, i) => (
          <div key={i} data-first={i === 0 || undefined}>
            <StepReasonText reason={reason} />
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
  const needsApproval = waitsForApproval(step);
  const question = needsApproval ? approvalMessage(run, step) : null;
  const isAllowed = useCan()("operate", "runs", run.namespace);
  const mayMark = isAllowed && !isOver && isMarkable(step);
  const mayRetry = isAllowed && isOver && step.section === "steps";
  if (!needsApproval && !mayMark && !mayRetry) return null;
  const { name } = step;
  return (
    <>
      {question && <q className={style.question}>{question}</q>}
      <div className={style.acts}>
        {needsApproval && <ApprovalActions run={run} step={step} />}
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
          onConfirm={(note) => markStep(run.id, name, open.status, note)}
          done={t("step.marked", { name })}
          onClose={close}
        />
      )}
      {open?.act === "retry" && <RetryDialog run={run} steps={steps} from={name} onClose={close} />}
    </>
  );
}
