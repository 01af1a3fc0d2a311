/** Waiting reasons of a job. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { HelpCircle } from "lucide-react";
import { Fragment, type ReactNode } from "react";
import { Trans, useTranslation } from "react-i18next";

import { useWorkerName, whyQuery } from "../../api/queries";
import type {
  FailedFilter,
  Reason,
  UnavailableService,
  WaitingUpstreamJob,
  Why,
  WorkerMismatch,
} from "../../api/schema";
import { useNow } from "../../lib/now";
import { quotaAmount } from "../../lib/quotas";
import { translateMessage } from "../../lib/serverMessages";
import style from "./job.module.css";
import { useTimeWithDistance } from "./timeWithDistance";

/** Maximum number of workers or upstream jobs of a list. */
const SHOWN = 8;

export function WaitingReasons({ id }: { id: string }) {
  const { t } = useTranslation();
  const { data } = useQuery({ ...whyQuery(id), refetchInterval: 5_000 });
  const reasons = data?.reasons.filter((reason) => reason.reason !== "running") ?? [];
  if (reasons.length === 0) return null;
  return (
    <section className={style.why} aria-label={t("why.title")} data-testid="why">
      <HelpCircle size={16} aria-hidden />
      <div>
        {reasons.map((reason, i) => (
          <div key={i} data-first={i === 0 || undefined}>
            <ReasonText reason={reason} />
          </div>
        ))}
        {data && <Deadlines why={data} />}
      </div>
    </section>
  );
}

/** The deadlines that can still end the job, or that it has missed. */
function Deadlines({ why }: { why: Why }) {
  const { t } = useTranslation();
  const until = useTimeWithDistance();
  const now = useNow();
  const { start_by: startBy, finish_by: finishBy, finish_action: action } = why;
  const isPassed = finishBy && action === "report" && Date.parse(finishBy) <= now;
  return (
    <>
      {startBy && <p>{t("why.start_by", { until: until(startBy) })}</p>}
      {finishBy && action && (
        <p>{t(`why.finish_by_${isPassed ? "passed" : action}`, { until: until(finishBy) })}</p>
      )}
    </>
  );
}

function ReasonText({ reason }: { reason: Reason }): ReactNode {
  const { t } = useTranslation();
  const workerName = useWorkerName();
  const until = useTimeWithDistance();
  switch (reason.reason) {
    case "not_due":
      return <p>{t("why.not_due", { until: until(reason.until) })}</p>;
    case "upstream_jobs":
      return <UpstreamJobs jobs={reason.jobs} />;
    case "required_services":
      return <RequiredServices services={reason.services} />;
    case "backoff":
      return (
        <p>
          {reason.failures > 0 || !reason.losses
            ? t("why.backoff", { until: until(reason.until), count: reason.failures })
            : t("why.backoff_lost", { until: until(reason.until), count: reason.losses })}
        </p>
      );
    case "queue_paused":
      return (
        <p>
          <Trans
            i18nKey="why.queue_paused"
            values={{ queue: reason.queue }}
            components={{ a: <QueueLink /> }}
          />
          {reason.note && <q className="quiet">{reason.note}</q>}
        </p>
      );
    case "namespace_quota":
      return <NamespaceQuota reason={reason} />;
    case "queue_concurrency":
      return (
        <p>
          <Trans
            i18nKey="why.queue_concurrency"
            values={{ queue: reason.queue, running: reason.running, limit: reason.limit }}
            components={{ a: <QueueLink /> }}
          />
        </p>
      );
    case "queue_rate":
      return <p>{t("why.queue_rate", { queue: reason.queue, until: until(reason.until) })}</p>;
    case "concurrency_key":
      return (
        <p>{t("why.concurrency_key", { key: reason.key, running: reason.running, limit: reason.limit })}</p>
      );
    case "queued_behind":
      return <p>{t("why.queued_behind", { count: reason.waiting })}</p>;
    case "clock_behind":
      return <p>{t("why.clock_behind", { by: reason.by })}</p>;
    case "reconciling":
      return <p>{t("why.reconciling", { until: until(reason.until) })}</p>;
    case "storage_full":
      return <p>{t("why.storage_full")}</p>;
    case "no_workers":
      return <p>{t("why.no_workers")}</p>;
    case "no_eligible_worker":
      return <UnschedulableWorkers workers={reason.workers} more={reason.more} />;
    case "placeable":
      return <p>{t("why.placeable", { worker: workerName(reason.worker) })}</p>;
    case "reserved":
      return <p>{t("why.reserved", { worker: workerName(reason.worker) })}</p>;
    case "preempting":
      return <Preempting worker={reason.worker} victims={reason.victims} />;
    case "capacity_reserved":
      return <CapacityReserved worker={reason.worker} until={reason.until} />;
    case "preempted":
      return (
        <p>
          <Trans
            i18nKey="why.preempted"
            values={{ job: reason.by }}
            components={{ a: <JobLink id={reason.by} /> }}
          />
        </p>
      );
    case "worker_disconnected":
      return (
        <p>
          {t("why.worker_disconnected", { worker: workerName(reason.worker), until: until(reason.until) })}
        </p>
      );
    case "outcome_unknown":
      return (
        <p>{t("why.outcome_unknown", { worker: workerName(reason.worker), until: until(reason.until) })}</p>
      );
    case "stopping":
      return <p>{t("why.stopping", { since: until(reason.since) })}</p>;
    case "running":
      return null;
  }
}

function UpstreamJobs({ jobs }: { jobs: readonly WaitingUpstreamJob[] }) {
  const { t } = useTranslation();
  return (
    <>
      <p>{t("why.upstream_jobs", { count: jobs.length })}</p>
      <ul className={style.failedFilters}>
        {jobs.slice(0, SHOWN).map(({ job, condition, status }) => (
          <li key={job}>
            <JobLink id={job}>{job}</JobLink>
            <span>
              {status ? t(`status.${status}`) : t("why.damaged")} ({t(`upstreamCondition.${condition}`)})
            </span>
          </li>
        ))}
        {jobs.length > SHOWN && <li className="quiet">{t("why.more", { count: jobs.length - SHOWN })}</li>}
      </ul>
    </>
  );
}

function RequiredServices({ services }: { services: readonly UnavailableService[] }) {
  const { t } = useTranslation();
  return (
    <>
      <p>{t("why.required_services", { count: services.length })}</p>
      <ul className={style.failedFilters}>
        {services.map(({ service, available, min_available: required }) => (
          <li key={service}>
            <strong>{service}</strong>
            <span>
              {available === undefined
                ? t("why.service_missing")
                : t("why.service_available", { available, required })}
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

function NamespaceQuota({ reason }: { reason: Extract<Reason, { reason: "namespace_quota" }> }) {
  const { t } = useTranslation();
  const { namespace, resource, used, needed, limit, note } = reason;
  const components = { a: <NamespaceLink /> };
  const amount = (of: number) => quotaAmount(resource, of, t);
  return (
    <p>
      {resource === "running" ? (
        <Trans
          i18nKey="why.namespace_quota_running"
          values={{ namespace, used: used.toLocaleString(), limit: limit.toLocaleString() }}
          components={components}
        />
      ) : (
        <Trans
          i18nKey="why.namespace_quota"
          values={{ namespace, used: amount(used), needed: amount(needed), limit: amount(limit) }}
          components={components}
        />
      )}
      {note && <q className="quiet">{note}</q>}
    </p>
  );
}

/** The jobs that are stopped for the job, and their worker. */
function Preempting({ worker, victims }: { worker: string; victims: readonly string[] }) {
  const values = { worker: useWorkerName()(worker) };
  const { t } = useTranslation();
  const components = { a: <WorkerLink id={worker} /> };
  if (victims.length === 0) {
    return (
      <p>
        <Trans i18nKey="why.preempting_done" values={values} components={components} />
      </p>
    );
  }
  return (
    <>
      <p>
        <Trans i18nKey="why.preempting" count={victims.length} values={values} components={components} />
      </p>
      <ul className={style.failedFilters}>
        {victims.slice(0, SHOWN).map((job) => (
          <li key={job}>
            <JobLink id={job}>{job}</JobLink>
          </li>
        ))}
        {victims.length > SHOWN && (
          <li className="quiet">{t("why.more", { count: victims.length - SHOWN })}</li>
        )}
      </ul>
    </>
  );
}

function CapacityReserved({ worker, until }: { worker: string; until?: string | null }) {
  const values = { worker: useWorkerName()(worker) };
  const untilText = useTimeWithDistance();
  const components = { a: <WorkerLink id={worker} /> };
  return (
    <p>
      {until ? (
        <Trans
          i18nKey="why.capacity_reserved_until"
          values={{ ...values, until: untilText(until) }}
          components={components}
        />
      ) : (
        <Trans i18nKey="why.capacity_reserved" values={values} components={components} />
      )}
    </p>
  );
}

function JobLink({ id, children }: { id: string; children?: ReactNode }) {
  return (
    <Link to="/jobs/$id" params={{ id }} className={`${style.whyLink} mono`}>
      {children}
    </Link>
  );
}

function WorkerLink({ id, children }: { id: string; children?: ReactNode }) {
  return (
    <Link to="/workers/$id" params={{ id }} className={style.whyLink}>
      {children}
    </Link>
  );
}

function QueueLink({ children }: { children?: ReactNode }) {
  return (
    <Link to="/queues" className={style.whyLink}>
      {children}
    </Link>
  );
}

function NamespaceLink({ children }: { children?: ReactNode }) {
  return (
    <Link to="/namespaces" className={style.whyLink}>
      {children}
    </Link>
  );
}

function UnschedulableWorkers({ workers, more }: { workers: readonly WorkerMismatch[]; more: number }) {
  const { t } = useTranslation();
  return (
    <>
      <p>{t("why.no_eligible_worker", { count: workers.length + more })}</p>
      <ul className={style.failedFilters}>
        {workers.slice(0, SHOWN).map((worker) => (
          <li key={worker.worker}>
            <WorkerLink id={worker.worker}>{worker.name}</WorkerLink>
            <span>
              {worker.failed_filters.map((filter, i) => (
                <Fragment key={i}>
                  {i > 0 && t("common.listSeparator")}
                  <FailedFilterText filter={filter} />
                </Fragment>
              ))}
            </span>
          </li>
        ))}
        {workers.length + more > SHOWN && (
          <li className="quiet">{t("why.more", { count: workers.length + more - SHOWN })}</li>
        )}
      </ul>
    </>
  );
}

function FailedFilterText({ filter }: { filter: FailedFilter }): ReactNode {
  const { t } = useTranslation();
  if (filter.filter === "constraint" && !filter.value)
    return t("unschedulable.unlabelled", { label: filter.label });
  if (filter.filter === "unhealthy") {
    return t("unschedulable.unhealthy", { problem: translateMessage(filter.problem, t) });
  }
  if (filter.filter === "reserved_for_job") {
    const { job } = filter;
    const components = { a: <JobLink id={job} /> };
    return <Trans i18nKey="unschedulable.reserved_for_job" values={{ job }} components={components} />;
  }
  const entries = Object.entries(filter).map(([key, value]) => [key, value === null ? "–" : String(value)]);
  // Each text has the placeholders of its kind, which the types cannot express.
  const values = Object.fromEntries(entries) as Record<"needed" | "free" | "capacity", string>;
  return t(`unschedulable.${filter.filter as "cpu"}`, values);
}
