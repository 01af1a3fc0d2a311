/** Why a run ended badly: its failed step with the job behind it, or the cause of the run itself. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import { jobQuery } from "../../api/queries";
import type { RunStep, WorkflowRun } from "../../api/schema";
import { failedElementQuery } from "../../api/workflows";
import { adviceForStep, runFailureOf, type RunFailure, jobFailureOf } from "../../lib/failureCauses";
import { stepReasonText, transitionDetail } from "../../lib/serverMessages";
import { KeyValueList, Loading } from "../../ui/kit";
import { RelativeTime } from "../../ui/Time";
import { AdviceText, FailureSection, JobFailureDetails, StopText } from "../job/FailureCard";
import failureStyle from "../job/failure.module.css";
import style from "./run.module.css";

interface Props {
  run: WorkflowRun;
  steps: readonly RunStep[];
  /** Shows a step, and optionally a job of one of its elements or a line of the log. */
  onSelect: (step: string, job?: string, line?: number) => void;
}

export function RunFailureCard({ run, steps, onSelect }: Props) {
  const failure = runFailureOf(run, steps);
  if (!failure) return null;
  const [step] = failure.failed;
  return (
    <FailureSection status={run.status === "failed" ? "failed" : "cancelled"}>
      {step ? (
        <StepFailure run={run} step={step} others={failure.failed.slice(1)} onSelect={onSelect} />
      ) : (
        <OwnFailure run={run} failure={failure} />
      )}
    </FailureSection>
  );
}

/** Further failed steps that are named. */
const OTHERS_SHOWN = 8;

function StepFailure({
  run,
  step,
  others,
  onSelect,
}: Omit<Props, "steps"> & { step: RunStep; others: readonly RunStep[] }) {
  const { t } = useTranslation();
  const element = useQuery({ ...failedElementQuery(run.id, step.name), enabled: step.for_each }).data;
  const id = element?.job_id ?? step.job_id ?? undefined;
  const called = element?.called_run_id ?? step.called_run_id;
  const { data: job, isLoading } = useQuery({ ...jobQuery(id ?? ""), enabled: id !== undefined });
  const failure = job && jobFailureOf(job, []);
  const facts: Parameters<typeof KeyValueList>[0]["rows"] = [
    [
      t("failure.step"),
      <span key="">
        <button type="button" className={style.linkish} onClick={() => onSelect(step.name)}>
          {step.name}
        </button>
        {element && (
          <span className="quiet">
            {" "}
            {t("failure.element", { index: element.index })}
            {element.value && <> ({element.value})</>}
          </span>
        )}
      </span>,
    ],
    others.length > 0 && [
      t("failure.others"),
      <span key="" className={failureStyle.others}>
        {others.slice(0, OTHERS_SHOWN).map(({ name }) => (
          <button key={name} type="button" className={style.linkish} onClick={() => onSelect(name)}>
            {name}
          </button>
        ))}
        {others.length > OTHERS_SHOWN && (
          <span className="quiet">{t("step.more", { count: others.length - OTHERS_SHOWN })}</span>
        )}
      </span>,
    ],
    // A job tells more than the cause of its step.
    (!failure || step.for_each) && [t(failure ? "step.elements" : "step.cause"), stepReasonText(step, t)],
    step.decision
      ? [
          t("step.decision"),
          <span key="">
            {step.decision.by}, <RelativeTime at={step.decision.at} />
            {step.decision.note && (
              <>
                : <q>{step.decision.note}</q>
              </>
            )}
          </span>,
        ]
      : null,
  ];
  if (job && failure) {
    return (
      <JobFailureDetails
        job={job}
        failure={failure}
        facts={facts}
        logLink={(text, line) => (
          <button
            type="button"
            className={style.linkish}
            onClick={() => onSelect(step.name, element?.job_id ?? undefined, line)}
          >
            {text}
          </button>
        )}
      />
    );
  }
  if (isLoading) return <Loading rows={4} />;
  return (
    <>
      <KeyValueList rows={facts} />
      <AdviceText advice={adviceForStep(step)}>
        {called && (
          <Link to="/runs/$id" params={{ id: called }}>
            {t("step.called")}
          </Link>
        )}
      </AdviceText>
    </>
  );
}

/** A run that failed without a failed step, or that was not cancelled by a user. */
function OwnFailure({ run, failure }: { run: WorkflowRun; failure: RunFailure }) {
  const { t } = useTranslation();
  const { end, stoppedBy, advice } = failure;
  const detail = transitionDetail(end, t);
  return (
    <>
      <KeyValueList
        rows={[
          [
            t("step.cause"),
            <strong key="" className={failureStyle.cause}>
              {stoppedBy?.by === "schedule" ? <StopText stop={stoppedBy} /> : t(`runCause.${end.cause}`)}
            </strong>,
          ],
          detail && !stoppedBy ? [t("job.result.message"), detail] : null,
          [t("job.details.finished"), <RelativeTime key="" at={end.at} />],
        ]}
      />
      <AdviceText advice={advice}>
        {run.caller && (
          <Link to="/runs/$id" params={{ id: run.caller.run }}>
            {t("failure.showCaller")}
          </Link>
        )}
        {run.origin && advice === "replaced" && (
          <Link to="/schedules/$id" params={{ id: run.origin.schedule }}>
            {t("failure.showSchedule")}
          </Link>
        )}
        {advice === "deadline" && run.workflow_id && (
          <Link to="/runs" search={{ workflow: run.workflow_id }}>
            {t("job.origin.others")}
          </Link>
        )}
        <Link to="/runs/$id" params={{ id: run.id }} search={{ tab: "history" }}>
          {t("run.tabs.history")}
        </Link>
      </AdviceText>
    </>
  );
}
