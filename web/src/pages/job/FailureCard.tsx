/** Why a job ended badly: its cause, the end of its log, and what to do. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { OctagonAlert } from "lucide-react";
import { type ReactNode, useId } from "react";
import { useTranslation } from "react-i18next";

import { failureOfJobQuery } from "../../api/failures";
import { logTailQuery, useWorkerName } from "../../api/queries";
import type { Execution, Job } from "../../api/schema";
import { type Advice, type JobFailure, type SystemStop } from "../../lib/failureCauses";
import { linesOfPage } from "../../lib/log";
import { resultText } from "../../lib/serverMessages";
import { AllowedSomewhere } from "../../ui/Allowed";
import { FailureLink } from "../../ui/FailureLink";
import { KeyValueList } from "../../ui/kit";
import { FailureBadge } from "../../ui/Status";
import { AbsoluteTime, RelativeTime } from "../../ui/Time";
import style from "./failure.module.css";
import log from "./log.module.css";
import { LogText } from "./LogText";

type Rows = Parameters<typeof KeyValueList>[0]["rows"];

/** A card that explains the end of a job or run. */
export function FailureSection({
  status,
  children,
}: {
  status: "failed" | "expired" | "cancelled";
  children: ReactNode;
}) {
  const { t } = useTranslation();
  const id = useId();
  return (
    <section className={style.failure} aria-labelledby={id} data-testid="failure">
      <h2 id={id}>
        <OctagonAlert size={15} aria-hidden />
        {t(`failure.title.${status}`)}
      </h2>
      {children}
    </section>
  );
}

interface Props {
  job: Job;
  failure: JobFailure;
  /** The newest execution. */
  execution?: Execution;
  /** Facts that come first, such as the step of a run. */
  facts?: Rows;
  /** Returns a link to the log, to one of its lines if it is given. */
  logLink: (text: string, line?: number) => ReactNode;
}

export function JobFailureDetails({ job, failure, execution, facts = [], logLink }: Props) {
  const { t } = useTranslation();
  const workerName = useWorkerName();
  const group = useQuery({ ...failureOfJobQuery(job), enabled: job.status !== "cancelled" }).data;
  const { result, spec, worker_id: worker } = job;
  const isResult = job.status === "failed";
  const cause = failure.endCause ? t(`cause.${failure.endCause}`) : isResult ? resultText(result, t) : null;
  const retries = spec?.retry?.max_retries;
  const maxLost = spec?.retry?.max_lost;
  return (
    <>
      <div className={style.columns}>
        <KeyValueList
          rows={[
            ...facts,
            [
              t("step.cause"),
              <strong key="" className={style.cause}>
                {failure.stoppedBy ? <StopText stop={failure.stoppedBy} /> : (cause ?? "–")}
              </strong>,
            ],
            failure.advice === "finishDeadline" && job.finish_by
              ? [t("job.details.finishBy"), <AbsoluteTime key="" at={job.finish_by} />]
              : null,
            isResult &&
              result?.exit_code != null && [t("job.result.exitCode"), <code key="">{result.exit_code}</code>],
            isResult &&
              result?.signal != null && [t("job.result.signal"), <code key="">{result.signal}</code>],
            isResult && result?.error ? [t("job.result.error"), <code key="">{result.error}</code>] : null,
            job.executions > 0 && [
              t("job.details.tries"),
              <span key="" className="num">
                {retries == null
                  ? job.executions
                  : t("failure.executions", { executions: job.executions, retries })}
              </span>,
            ],
            (job.losses ?? 0) > 0 && [
              t("job.details.lost"),
              <span key="" className="num">
                {maxLost == null ? job.losses : t("failure.losses", { losses: job.losses, limit: maxLost })}
              </span>,
            ],
            worker
              ? [
                  t("job.details.worker"),
                  <Link key="" to="/workers/$id" params={{ id: worker }}>
                    {workerName(worker)}
                  </Link>,
                ]
              : null,
            execution?.finished_at
              ? [t("job.details.finished"), <RelativeTime key="" at={execution.finished_at} />]
              : null,
            group && [
              t("failureGroup.one"),
              <span key="" className={style.group}>
                <FailureLink group={group} text={t("failureGroup.count24h", { count: group.last_24h })} />
                <FailureBadge group={group} plain />
              </span>,
            ],
          ]}
        />
        {job.executions > 0 && <LogTail job={job} logLink={logLink} />}
      </div>
      <AdviceText advice={failure.advice}>
        <AdviceLinks advice={failure.advice} job={job} logLink={logLink} />
      </AdviceText>
    </>
  );
}

/** Who stopped the job or run, in words. */
export function StopText({ stop }: { stop: SystemStop }) {
  const { t } = useTranslation();
  if (stop.by === "run") return t("failure.stoppedByRun");
  return (
    <>
      {t("failure.replaced", { name: stop.name })} <AbsoluteTime at={stop.at} />
    </>
  );
}

export function AdviceText({ advice, children }: { advice: Advice; children?: ReactNode }) {
  const { t } = useTranslation();
  return (
    <div className={style.advice}>
      <p>
        <strong>{t("failure.whatToDo")}</strong> <WithCode text={t(`advice.${advice}`)} />
      </p>
      <p className={style.links}>{children}</p>
    </div>
  );
}

/** A text with fields and variables in backticks. */
function WithCode({ text }: { text: string }) {
  return text.split("`").map((part, i) => (i % 2 === 0 ? part : <code key={i}>{part}</code>));
}

/** Advice that is followed by a change of the job's spec. */
const CHANGES_SPEC = new Set<Advice>([
  "timeout",
  "memory",
  "program",
  "arguments",
  "output",
  "deadline",
  "lostTooOften",
  "finishDeadline",
  "healthCheck",
  "ports",
  "sandboxConflict",
  "image",
  "container",
  "httpRequest",
  "httpResponse",
  "httpTimeout",
]);
/** Advice that concerns the worker. */
const CONCERNS_WORKER = new Set<Advice>([
  "signal",
  "memory",
  "program",
  "permission",
  "worker",
  "unsupported",
  "lost",
  "lostTooOften",
  "unknownOutcome",
  "ports",
  "volume",
  "sandbox",
  "sandboxLost",
  "image",
  "engine",
  "httpConnection",
  "tls",
]);
/** Advice for which the timeline has the details. */
const CONCERNS_TIMELINE = new Set<Advice>(["timeline", "unknownOutcome", "lostTooOften", "finishDeadline"]);

function AdviceLinks({ advice, job, logLink }: { advice: Advice; job: Job; logLink: Props["logLink"] }) {
  const { t } = useTranslation();
  const { worker_id: worker, step, origin } = job;
  return (
    <>
      {job.executions > 0 && logLink(t("failure.showLog"))}
      {CONCERNS_WORKER.has(advice) && worker && (
        <Link to="/workers/$id" params={{ id: worker }}>
          {t("failure.showWorker")}
        </Link>
      )}
      {advice === "deadline" && (
        <Link to="/queues" search={{ history: job.queue }}>
          {t("failure.showQueue", { name: job.queue })}
        </Link>
      )}
      {advice === "artifact" && <Link to="/artifacts">{t("nav.artifacts")}</Link>}
      {advice === "sandboxConflict" && (
        <AllowedSomewhere verb="read" on="namespaces">
          <Link to="/namespaces">{t("nav.namespaces")}</Link>
        </AllowedSomewhere>
      )}
      {advice === "stepStopped" && step && (
        <Link to="/runs/$id" params={{ id: step.run }}>
          {t("failure.showRun")}
        </Link>
      )}
      {advice === "replaced" && origin && (
        <Link to="/schedules/$id" params={{ id: origin.schedule }}>
          {t("failure.showSchedule")}
        </Link>
      )}
      {CONCERNS_TIMELINE.has(advice) && (
        <Link to="/jobs/$id" params={{ id: job.id }} search={{ tab: "timeline" }}>
          {t("failure.showTimeline")}
        </Link>
      )}
      {/* The spec of a step's job is part of its workflow, that of a replica part of its service. */}
      {CHANGES_SPEC.has(advice) && !step && !job.replica && (
        <AllowedSomewhere verb="create" on="jobs">
          <Link to="/submit" search={{ from: job.id }}>
            {t("job.again")}
          </Link>
        </AllowedSomewhere>
      )}
    </>
  );
}

function LogTail({ job, logLink }: { job: Job; logLink: Props["logLink"] }) {
  const { t } = useTranslation();
  const { data } = useQuery(logTailQuery(job.id));
  if (!data) return <div />;
  const lines = linesOfPage(data);
  const last = lines.at(-1);
  return (
    <div className={style.tail}>
      <div className={style.tailHead}>
        <span>{t("failure.lastLines")}</span>
        {last && logLink(t("failure.lineLink", { line: last.number }), last.number)}
      </div>
      {last ? (
        <pre
          className={`${log.colors} ${log.wrapped}`}
          tabIndex={0}
          role="group"
          aria-label={t("failure.lastLines")}
        >
          {lines.map((line) => (
            <span key={line.number} data-stream={line.stream}>
              <LogText line={line} />
              {"\n"}
            </span>
          ))}
        </pre>
      ) : (
        <p className="quiet">{t("log.empty")}</p>
      )}
    </div>
  );
}
