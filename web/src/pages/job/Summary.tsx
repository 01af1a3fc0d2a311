/** Summary of a job: result, checkpoint, times, origin, and requested settings. */

import { ActionIcon, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { TFunction } from "i18next";
import { Download } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";

import { fetchRaw } from "../../api/client";
import { useWorkerName, workersQuery } from "../../api/queries";
import type {
  Checkpoint,
  Execution,
  Job,
  JobResult,
  Origin,
  ReplicaOrigin,
  RequiredService,
  SecretReference,
  StepOrigin,
  UpstreamJob,
} from "../../api/schema";
import { saveAs } from "../../lib/download";
import { useNow } from "../../lib/now";
import { usePreferences } from "../../lib/preferences";
import { isShownClass } from "../../lib/priorityClasses";
import { formatBytes, formatDuration, parseDuration, peakMemory } from "../../lib/quantities";
import { programOf } from "../../lib/runtimes";
import { sandboxOf } from "../../lib/sandboxes";
import { resultText, translateMessage } from "../../lib/serverMessages";
import { isLive, isScheduled } from "../../lib/statuses";
import { formatExact } from "../../lib/time";
import { useCanSomewhere } from "../../ui/Allowed";
import { runAction } from "../../ui/notify";
import { StartedRuns } from "../../ui/Ended";
import { Card, CopyButton, KeyValueList, Labels } from "../../ui/kit";
import { RelativeTime, AbsoluteTime, Elapsed } from "../../ui/Time";
import { Ports } from "../service/Ports";
import { HealthBadge } from "../services/badges";
import style from "./job.module.css";
import { ServiceLink } from "./ReplicaOf";
import { UsageCard } from "./UsageCard";

/** Default of `retry.max_lost`, which the page does not show. */
const DEFAULT_MAX_LOST = 5;

interface Props {
  job: Job;
  execution: Execution | undefined;
  /** The execution whose use is shown. */
  selected: Execution | undefined;
  /** Whether the page explains the failure elsewhere. */
  isExplained: boolean;
}

export function Summary({ job, execution, selected, isExplained }: Props) {
  const { t } = useTranslation();
  const workerName = useWorkerName();
  const { spec } = job;
  const usage = execution?.usage;
  const health = isLive(job.status) ? execution?.health : null;
  const workers = useQuery({ ...workersQuery, enabled: useCanSomewhere()("read", "workers") }).data?.items;
  const address = workers?.find(({ id }) => id === execution?.worker_id)?.address;
  const memory = peakMemory(usage);
  return (
    <>
      {job.result && (!isExplained || job.result.output) && (
        <ResultCard result={job.result} isExplained={isExplained} />
      )}
      {job.checkpoint && <CheckpointCard job={job.id} checkpoint={job.checkpoint} />}
      <Card title={t("job.details.title")}>
        <KeyValueList
          rows={[
            [t("job.details.submitted"), <RelativeTime key="" at={job.created_at} />],
            isScheduled(job) && [t("job.details.due"), <RelativeTime key="" at={job.due_at} />],
            job.started_at ? [t("job.details.started"), <RelativeTime key="" at={job.started_at} />] : null,
            job.queued_at && job.started_at
              ? [t("job.details.waited"), <Elapsed key="" from={job.queued_at} to={job.started_at} />]
              : null,
            job.started_at
              ? [
                  t("job.details.took"),
                  <Elapsed key="" from={job.started_at} to={isLive(job.status) ? null : job.finished_at} />,
                ]
              : null,
            job.finished_at
              ? [t("job.details.finished"), <RelativeTime key="" at={job.finished_at} />]
              : null,
            job.worker_id
              ? [
                  t("job.details.worker"),
                  <Link key="" to="/workers/$id" params={{ id: job.worker_id }}>
                    {workerName(job.worker_id)}
                  </Link>,
                ]
              : null,
            job.finish_by ? [t("job.details.finishBy"), <FinishDeadline key="" job={job} />] : null,
            job.executions > 0 && [
              t("job.details.tries"),
              <span key="" className="num">
                {job.losses
                  ? t("job.details.triesLost", { executions: job.executions, lost: job.losses })
                  : job.executions}
              </span>,
            ],
            health && [
              t("job.details.health"),
              <span key="" data-testid="health">
                <HealthBadge status={health.status} />
                {health.detail && <p className="quiet">{translateMessage(health.detail, t)}</p>}
              </span>,
            ],
            Object.keys(health?.ports ?? {}).length > 0 && [
              t("job.details.ports"),
              <Ports key="" ports={health?.ports} address={address} />,
            ],
            usage && [t("job.details.cpuTime"), formatDuration(parseDuration(usage.cpu_time) ?? 0)],
            usage && [
              t("job.details.memory"),
              memory === null ? (
                <span key="" className="quiet">
                  –
                </span>
              ) : (
                formatBytes(memory)
              ),
            ],
            job.started_runs?.length
              ? [t("trigger.startedRuns"), <StartedRuns key="" ids={job.started_runs} />]
              : null,
          ]}
        />
      </Card>
      {selected && <UsageCard key={selected.id} job={job} execution={selected} />}
      {job.replica && <ServiceOrigin replica={job.replica} namespace={job.namespace} />}
      {job.step && <RunOrigin step={job.step} />}
      {job.origin && <ScheduleOrigin origin={job.origin} />}
      <Card title={t("job.details.asked")}>
        <KeyValueList
          rows={[
            ...programRows(spec, t),
            [
              t("job.details.queue"),
              <Link key="" to="/jobs" search={{ queue: job.queue }}>
                {job.queue}
              </Link>,
            ],
            isShownClass(job.priority_class) && [
              t("job.details.priorityClass"),
              t(`priorityClass.${job.priority_class}`),
            ],
            [
              t("job.details.priority"),
              <span key="" className="num">
                {job.priority}
              </span>,
            ],
            [t("job.details.namespace"), job.namespace],
            job.owner
              ? [
                  t("job.details.owner"),
                  <Link key="" to="/jobs" search={{ owner: job.owner }}>
                    {job.owner}
                  </Link>,
                ]
              : null,
            Object.keys(job.labels ?? {}).length > 0 && [
              t("job.details.labels"),
              <Labels key="" labels={job.labels} />,
            ],
            spec?.timeout ? [t("job.details.timeout"), spec.timeout] : null,
            spec?.retry && [t("job.details.retries"), String(spec.retry.max_retries ?? 0)],
            spec?.retry?.backoff?.delays?.length
              ? [t("job.details.delays"), spec.retry.backoff.delays.join(", ")]
              : null,
            spec?.retry?.max_lost != null &&
              spec.retry.max_lost !== DEFAULT_MAX_LOST && [
                t("job.details.maxLost"),
                String(spec.retry.max_lost),
              ],
            spec?.delivery && [t("job.details.delivery"), t(`delivery.${spec.delivery}`)],
            spec?.concurrency && [
              t("job.details.concurrency"),
              `${spec.concurrency.key} ≤ ${spec.concurrency.limit ?? 1}`,
            ],
            spec?.after?.length ? [t("job.details.after"), <UpstreamJobs key="" jobs={spec.after} />] : null,
            spec?.requires?.length
              ? [
                  t("job.details.requires"),
                  <RequiredServices key="" services={spec.requires} namespace={job.namespace} />,
                ]
              : null,
            spec?.volumes?.length
              ? [t("job.details.volumes"), spec.volumes.map(({ name }) => name).join(", ")]
              : null,
            spec?.secrets?.length
              ? [t("job.details.secrets"), spec.secrets.map(secretText).join(", ")]
              : null,
            job.retry_of
              ? [
                  t("job.details.retryOf"),
                  <Link key="" to="/jobs/$id" params={{ id: job.retry_of }} className="mono">
                    …{job.retry_of.slice(-8)}
                  </Link>,
                ]
              : null,
            job.expires_at ? [t("job.details.kept"), <RelativeTime key="" at={job.expires_at} />] : null,
          ]}
        />
      </Card>
    </>
  );
}

/** The runtime of a job, and what it runs. */
function programRows(spec: Job["spec"], t: TFunction): Array<[string, ReactNode] | undefined> {
  const program = spec && programOf(spec);
  if (!program) return [];
  const sandbox = sandboxOf(spec);
  const row = (name: string, text: string | undefined): [string, ReactNode] | undefined =>
    text ? [name, <ProgramText key="" text={text} />] : undefined;
  return [
    [t("submit.runtime"), t(`runtime.${program.runtime}`)],
    row(t("submit.image"), program.image),
    row(t("submit.command"), program.command),
    row(t("submit.script"), program.script),
    row(t("job.details.request"), program.request),
    sandbox ? [t("submit.sandbox"), t(`sandboxLevel.${sandbox.level}`)] : undefined,
    sandbox ? [t("submit.network"), t(`sandboxNetwork.${sandbox.network}`)] : undefined,
  ];
}

/** A command or request, whose end is left out if it is long. The tab of the spec has all of it. */
function ProgramText({ text }: { text: string }) {
  return (
    <code className={style.program} title={text}>
      {text}
    </code>
  );
}

function RequiredServices(props: { services: readonly RequiredService[]; namespace: string }) {
  const { services, namespace } = props;
  return services.map(({ service, min_available: count }) => (
    <div key={service}>
      <ServiceLink name={service} namespace={namespace}>
        {service}
      </ServiceLink>
      {(count ?? 1) > 1 && <span className="quiet"> ≥ {count}</span>}
    </div>
  ));
}

/** Completion deadline: the time left, with the action that follows; or that it has passed. */
function FinishDeadline({ job }: { job: Job }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const action = job.spec?.finish_by?.action ?? "fail";
  const left = Date.parse(job.finish_by ?? "") - useNow();
  const isAhead = isLive(job.status) && !job.overdue && left > 0;
  const note = job.overdue
    ? t("job.details.passed")
    : isLive(job.status)
      ? t(`finishAction.${action}`)
      : null;
  return (
    <span data-testid="finish-by">
      {isAhead && job.finish_by ? (
        <Tooltip label={formatExact(job.finish_by, language, zone)}>
          <time dateTime={job.finish_by} className="num">
            {t("why.in", { length: formatDuration(Math.ceil(left / 1_000) * 1_000) })}
          </time>
        </Tooltip>
      ) : (
        <RelativeTime at={job.finish_by} />
      )}
      {note && <small className="quiet"> · {note}</small>}
    </span>
  );
}

function UpstreamJobs({ jobs }: { jobs: readonly UpstreamJob[] }) {
  const { t } = useTranslation();
  return jobs.map(({ job, condition }) => (
    <div key={job}>
      <Link to="/jobs/$id" params={{ id: job }} className="mono">
        …{job.slice(-8)}
      </Link>{" "}
      {t(`upstreamCondition.${condition ?? "success"}`)}
    </div>
  ));
}

/** The service that the job is a replica of. */
function ServiceOrigin({ replica, namespace }: { replica: ReplicaOrigin; namespace: string }) {
  const { t } = useTranslation();
  return (
    <Card title={t("job.replica.title")}>
      <KeyValueList
        rows={[
          [
            t("job.replica.service"),
            <ServiceLink key="" name={replica.name} namespace={namespace}>
              {replica.name}
            </ServiceLink>,
          ],
          [
            t("job.replica.replica"),
            <span key="" className="num">
              {replica.replica}
            </span>,
          ],
          [
            t("job.replica.revision"),
            <span key="" className="num">
              {replica.revision}
            </span>,
          ],
          [
            t("nav.jobs"),
            <Link key="" to="/jobs" search={{ service: replica.service }}>
              {t("service.allJobs")}
            </Link>,
          ],
        ]}
      />
    </Card>
  );
}

/** The run and step that created the job. */
function RunOrigin({ step }: { step: StepOrigin }) {
  const { t } = useTranslation();
  const { run, element } = step;
  return (
    <Card title={t("job.fromRun.title")}>
      <KeyValueList
        rows={[
          [
            t("job.fromRun.run"),
            <Link key="" to="/runs/$id" params={{ id: run }}>
              {step.workflow} <span className="mono">…{run.slice(-6)}</span>
            </Link>,
          ],
          [
            t("job.fromRun.step"),
            <Link key="" to="/runs/$id" params={{ id: run }} search={{ step: step.name }}>
              {step.name}
            </Link>,
          ],
          element
            ? [
                t("job.fromRun.element"),
                <span key="" className="num">
                  {t("job.fromRun.of", { index: element.index + 1, total: element.total })}
                </span>,
              ]
            : null,
          element ? [t("job.fromRun.value"), <code key="">{element.value}</code>] : null,
        ]}
      />
    </Card>
  );
}

/** The schedule and firing that created the job. */
function ScheduleOrigin({ origin }: { origin: Origin }) {
  const { t } = useTranslation();
  const { schedule, backfill } = origin;
  return (
    <Card title={t("job.origin.title")}>
      <KeyValueList
        rows={[
          [
            t("job.origin.schedule"),
            <Link key="" to="/schedules/$id" params={{ id: schedule }}>
              {origin.name}
            </Link>,
          ],
          [t("job.origin.nominal"), <AbsoluteTime key="" at={origin.scheduled_for} />],
          [t("job.origin.cause"), t(`firingCause.${origin.cause}`)],
          origin.interval_start
            ? [t("job.origin.interval"), <AbsoluteTime key="" at={origin.interval_start} />]
            : null,
          origin.start_by ? [t("job.origin.startBy"), <RelativeTime key="" at={origin.start_by} />] : null,
          backfill
            ? [
                t("job.origin.backfill"),
                <Link key="" to="/jobs" search={{ backfill }} className="mono">
                  …{backfill.slice(-8)}
                </Link>,
              ]
            : null,
          [
            t("job.origin.others"),
            <Link key="" to="/jobs" search={{ schedule }}>
              {t("job.origin.all")}
            </Link>,
          ],
        ]}
      />
    </Card>
  );
}

/** The job's last checkpoint, from which the next attempt continues. */
function CheckpointCard({ job, checkpoint }: { job: string; checkpoint: Checkpoint }) {
  const { t } = useTranslation();
  const download = () =>
    runAction(async () => {
      const response = await fetchRaw(`/api/v1/jobs/${job}/checkpoint`);
      saveAs(await response.blob(), `${job}.checkpoint-${checkpoint.version}`);
    });
  return (
    <Card
      title={t("job.checkpoint.title")}
      aside={
        <Tooltip label={t("job.checkpoint.download")}>
          <ActionIcon
            variant="default"
            aria-label={t("job.checkpoint.download")}
            onClick={() => void download()}
          >
            <Download size={14} />
          </ActionIcon>
        </Tooltip>
      }
    >
      <KeyValueList
        rows={[
          [t("job.checkpoint.saved"), <RelativeTime key="" at={checkpoint.saved_at} />],
          [t("job.checkpoint.by"), t("job.checkpoint.try", { number: checkpoint.execution })],
          [
            t("job.checkpoint.version"),
            <span key="" className="num">
              {checkpoint.version}
            </span>,
          ],
          [t("job.checkpoint.size"), formatBytes(checkpoint.size_bytes)],
          [t("job.checkpoint.type"), <code key="">{checkpoint.content_type}</code>],
        ]}
      />
    </Card>
  );
}

function ResultCard({ result, isExplained }: { result: JobResult; isExplained: boolean }) {
  const { t } = useTranslation();
  const output = result.output ? JSON.stringify(result.output, null, 2) : null;
  const message = resultText(result, t);
  return (
    <Card title={t("job.result.title")}>
      {!isExplained && (
        <KeyValueList
          rows={[
            message ? [t("job.result.message"), message] : null,
            result.exit_code !== undefined && result.exit_code !== null
              ? [t("job.result.exitCode"), <code key="">{result.exit_code}</code>]
              : null,
            result.signal ? [t("job.result.signal"), <code key="">{result.signal}</code>] : null,
            result.error ? [t("job.result.error"), <code key="">{result.error}</code>] : null,
          ]}
        />
      )}
      {output && (
        <div className={style.output}>
          <div className={style.outputHead}>
            <span className="quiet">{t("job.result.output")}</span>
            <CopyButton text={output} label={t("common.copy")} />
          </div>
          <pre>{output}</pre>
        </div>
      )}
    </Card>
  );
}

/** Returns a reference to a secret as a text: “DB_PASSWORD = db/password”. */
function secretText({ secret, key, env, file }: SecretReference): string {
  return `${env ?? file ?? ""} = ${secret}/${key}`;
}
