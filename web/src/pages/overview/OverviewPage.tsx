/** The overview: items that need attention, charts, jobs, next firings, queues and workers. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { CircleCheck, Plus, Rocket } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { ATTENTION, attentionFailuresQuery } from "../../api/failures";
import { countsQuery, queuesQuery, readyQuery, recentQuery, workersQuery } from "../../api/queries";
import { nextSchedulesQuery, schedulesQuery, watchedSchedulesQuery } from "../../api/schedules";
import type { Job, JobStatus, Resource, Schedule, Service } from "../../api/schema";
import { watchedServicesQuery } from "../../api/services";
import { alertCountsQuery } from "../../api/alerts";
import { approvalsQuery, runsQuery } from "../../api/workflows";
import { useNow } from "../../lib/now";
import { resultText } from "../../lib/serverMessages";
import { degradedSince, type DegradedSince } from "../../lib/services";
import { parseRange } from "../../lib/statistics";
import { isLive, LIVE_STATUSES, STATUSES } from "../../lib/statuses";
import { usePageTitle } from "../../lib/title";
import { HistoryCard } from "../../ui/charts/History";
import { AllowedSomewhere, useCanSomewhere } from "../../ui/Allowed";
import { Card, EmptyState, Loading, Page, ErrorBox, Snippet } from "../../ui/kit";
import { StatusBadge, WorkerBadge } from "../../ui/Status";
import { RelativeTime, Elapsed } from "../../ui/Time";
import { WorkerMeters } from "../workers/WorkerMeters";
import { type AttentionItem, attentionItems, type PendingApproval } from "./attention";
import { AttentionRow } from "./AttentionRow";
import style from "./overview.module.css";

const route = getRouteApi("/");

/** Rows shown per list. */
const LIST_ROWS = 8;
const TILES = [
  "running",
  "waiting",
  "ready",
  "retrying",
  "succeeded",
  "failed",
] as const satisfies readonly JobStatus[];

export function OverviewPage() {
  const { t } = useTranslation();
  usePageTitle("");
  const readsJobs = useCanSomewhere()("read", "jobs");
  const counts = useQuery({ ...countsQuery(), enabled: readsJobs });
  const total = counts.data && STATUSES.reduce((sum, status) => sum + counts.data[status], 0);
  if (counts.error && !counts.data) {
    return (
      <Page title={t("nav.overview")}>
        <ErrorBox error={counts.error} onRetry={() => void counts.refetch()} />
      </Page>
    );
  }
  return (
    <Page title={t("nav.overview")}>
      {readsJobs && (
        <div className={style.tiles}>
          {TILES.map((status) => (
            <Link
              key={status}
              to="/jobs"
              search={{ status }}
              className={style.tile}
              data-testid={`tile-${status}`}
            >
              <StatusBadge status={status} plain />
              <strong className="num">{counts.data ? counts.data[status].toLocaleString() : "–"}</strong>
            </Link>
          ))}
        </div>
      )}
      {total === 0 ? <Welcome /> : <Panels />}
    </Page>
  );
}

function Welcome() {
  const { t } = useTranslation();
  return (
    <Card>
      <EmptyState
        icon={Rocket}
        title={t("overview.welcome")}
        action={
          <AllowedSomewhere verb="create" on="jobs">
            <Button component={Link} to="/submit" leftSection={<Plus size={14} />}>
              {t("nav.submit")}
            </Button>
          </AllowedSomewhere>
        }
      >
        <p>{t("overview.welcomeText")}</p>
        <br />
        <Snippet text="belfry submit --follow -- echo 'hello from Belfry'" />
      </EmptyState>
    </Card>
  );
}

function Panels() {
  const { t } = useTranslation();
  const { range } = route.useSearch();
  const navigate = route.useNavigate();
  const now = useNow();
  const canSomewhere = useCanSomewhere();
  const reads = (resource: Resource) => canSomewhere("read", resource);
  const readsJobs = reads("jobs");
  const workers = useQuery({ ...workersQuery, enabled: reads("workers") }).data?.items;
  const queues = useQuery({ ...queuesQuery, enabled: reads("queues") }).data?.items;
  const ready = useQuery(readyQuery).data;
  const alerts = useQuery({ ...alertCountsQuery, enabled: reads("alerts") }).data;
  const failures = useQuery({ ...attentionFailuresQuery, enabled: readsJobs });
  const running = useQuery({ ...recentQuery(["running"], LIST_ROWS), enabled: readsJobs }).data?.items;
  const waitingJobs = recentQuery(["retrying", "waiting"], LIST_ROWS);
  const waiting = useQuery({ ...waitingJobs, enabled: readsJobs }).data?.items;
  const live = running && waiting && [...running, ...waiting].slice(0, LIST_ROWS);
  const newestEnded = recentQuery(["succeeded", "failed", "cancelled", "expired"], 50);
  const endedJobs = useQuery({ ...newestEnded, enabled: readsJobs }).data?.items;
  // The list is ordered by submission; the job that ended last may have been submitted long ago.
  const ended = endedJobs && [...endedJobs].sort((a, b) => endTime(b) - endTime(a)).slice(0, LIST_ROWS);
  const schedules = useWatchedSchedules();
  const failedRuns = useQuery({ ...runsQuery({ status: "failed" }, 50), enabled: reads("runs") }).data;
  const approvals = usePendingApprovals();
  const services = useQuery({ ...watchedServicesQuery, enabled: reads("services") }).data?.items;
  const degraded = useDegradedSince(services, now);
  const input = {
    ready,
    workers,
    alerts,
    queues,
    failures: failures.data?.items,
    failedRuns,
    approvals,
    services,
    degradedSince: degraded,
    schedules,
    now,
  };
  const items = attentionItems(input);

  return (
    <>
      <Card
        title={t("overview.attention")}
        aside={failures.data && items.length > 0 ? t("overview.items", { count: items.length }) : undefined}
        flush
      >
        {(!workers && reads("workers")) || (failures.isPending && readsJobs) ? (
          <div className={style.padded}>
            <Loading rows={2} />
          </div>
        ) : items.length === 0 && (failures.data || !readsJobs) ? (
          <p className={style.well}>
            <CircleCheck size={16} aria-hidden /> {t("overview.healthy")}
          </p>
        ) : (
          <AttentionList items={items} />
        )}
        {failures.error && !failures.data && (
          <div className={style.padded}>
            <ErrorBox error={failures.error} onRetry={() => void failures.refetch()} />
          </div>
        )}
        {failures.data && failures.data.total > failures.data.items.length && (
          <p className={style.note}>
            {t("overview.moreFailures", { count: failures.data.total - failures.data.items.length })}{" "}
            <Link to="/failures" search={ATTENTION}>
              {t("overview.failuresSee")}
            </Link>
          </p>
        )}
      </Card>
      {readsJobs && (
        <HistoryCard
          subject={{}}
          charts={["ended", "startDelay"]}
          range={parseRange(range)}
          onRange={(range) => void navigate({ search: { range }, replace: true })}
        />
      )}
      <div className={style.two}>
        {readsJobs && (
          <>
            <Card
              title={t("overview.now")}
              aside={
                <Link to="/jobs" search={{ status: "ready,waiting,running,retrying" }}>
                  {t("overview.all")}
                </Link>
              }
              flush
            >
              <JobList jobs={live} none={t("overview.nothingRuns")} />
            </Card>
            <Card title={t("overview.ended")} aside={<Link to="/jobs">{t("overview.all")}</Link>} flush>
              <JobList jobs={ended} none={t("overview.nothingEnded")} />
            </Card>
          </>
        )}
        {reads("schedules") && <NextFirings />}
        {reads("queues") && (
          <Card title={t("nav.queues")} aside={<Link to="/queues">{t("overview.all")}</Link>} flush>
            <div className={style.queues}>
              {queues?.slice(0, 8).map((queue) => (
                <div key={queue.name}>
                  <Link to="/jobs" search={{ queue: queue.name }} className="clip">
                    {queue.name}
                  </Link>
                  <Link to="/jobs" search={{ queue: queue.name, status: "running" }} className="num">
                    {t("overview.queueRunning", { count: queue.running })}
                  </Link>
                  <Link to="/jobs" search={{ queue: queue.name, status: "waiting" }} className="num">
                    {t("overview.queueWaiting", { count: queue.waiting })}
                  </Link>
                </div>
              ))}
            </div>
          </Card>
        )}
        {reads("workers") && (
          <Card title={t("nav.workers")} aside={<Link to="/workers">{t("overview.all")}</Link>}>
            <div className={style.workers}>
              {workers?.slice(0, 4).map((worker) => (
                <div key={worker.id}>
                  <p className={style.workerName}>
                    <Link to="/workers/$id" params={{ id: worker.id }} className="clip">
                      {worker.name}
                    </Link>
                    <WorkerBadge status={worker.status} />
                  </p>
                  <WorkerMeters worker={worker} />
                </div>
              ))}
            </div>
          </Card>
        )}
      </div>
    </>
  );
}

/** The first items that need attention, or all of them. */
function AttentionList({ items }: { items: readonly AttentionItem[] }) {
  const { t } = useTranslation();
  const [isAll, setAll] = useState(false);
  return (
    <>
      <ul className={style.needs}>
        {(isAll ? items : items.slice(0, LIST_ROWS)).map((item, i) => (
          <AttentionRow key={i} item={item} />
        ))}
      </ul>
      {items.length > LIST_ROWS && (
        <button type="button" className={style.more} onClick={() => setAll(!isAll)} aria-expanded={isAll}>
          {isAll ? t("overview.showFewer") : t("overview.showAll", { total: items.length })}
        </button>
      )}
    </>
  );
}

/** Active jobs whose schedules are watched, and maximum number of these schedules. */
const WATCHED_JOBS = 100;
const WATCHED_SCHEDULES_MAX = 20;

/** Returns schedules that may need attention: those with active runs, and paused ones. */
function useWatchedSchedules(): Schedule[] {
  const canSomewhere = useCanSomewhere();
  const openJobs = recentQuery(LIVE_STATUSES, WATCHED_JOBS);
  const open = useQuery({ ...openJobs, enabled: canSomewhere("read", "jobs") }).data?.items ?? [];
  const reads = canSomewhere("read", "schedules");
  const paused = useQuery({ ...schedulesQuery({ status: "paused" }, 50), enabled: reads }).data?.items ?? [];
  const ids = [...new Set(open.flatMap((job) => job.origin?.schedule ?? []))].slice(0, WATCHED_SCHEDULES_MAX);
  const watchedSchedules = watchedSchedulesQuery(ids);
  const isNeeded = reads && watchedSchedules.enabled !== false;
  const watched = useQuery({ ...watchedSchedules, enabled: isNeeded }).data?.items ?? [];
  const active = watched.filter(({ id }) => ids.includes(id));
  return [...active, ...paused.filter(({ id }) => !ids.includes(id))];
}

const NOT_DEGRADED: DegradedSince = new Map();

/** Returns since when services are degraded, as far as this page has seen it. */
function useDegradedSince(services: readonly Service[] | undefined, now: number): DegradedSince {
  const [seen, setSeen] = useState<{ services: readonly Service[]; since: DegradedSince } | null>(null);
  if (services && seen?.services !== services) {
    setSeen({ services, since: degradedSince(seen?.since ?? null, services, now) });
  }
  return seen?.since ?? NOT_DEGRADED;
}

function usePendingApprovals(): PendingApproval[] {
  const canSomewhere = useCanSomewhere();
  const live = useQuery({ ...approvalsQuery, enabled: canSomewhere("read", "runs") }).data?.items ?? [];
  return live.flatMap((run) => (run.approvals ?? []).map(({ step, since }) => ({ run, step, since })));
}

/** The schedules that fire next. */
function NextFirings() {
  const { t } = useTranslation();
  const next = useQuery(nextSchedulesQuery(LIST_ROWS)).data?.items;
  return (
    <Card
      title={t("overview.next")}
      aside={<Link to="/schedules/timetable">{t("nav.timetable")}</Link>}
      flush
    >
      {next?.length === 0 && <p className={style.nothing}>{t("overview.nothingFires")}</p>}
      <div className={style.queues}>
        {next?.map((schedule) => (
          <div key={schedule.id}>
            <Link to="/schedules/$id" params={{ id: schedule.id }} className="clip">
              {schedule.name}
            </Link>
            <span />
            <RelativeTime at={schedule.next_at} />
          </div>
        ))}
      </div>
    </Card>
  );
}

function endTime(job: Job): number {
  return Date.parse(job.finished_at ?? job.updated_at);
}

function JobList({ jobs, none }: { jobs: readonly Job[] | undefined; none: string }) {
  const { t } = useTranslation();
  if (!jobs) {
    return (
      <div className={style.padded}>
        <Loading rows={3} />
      </div>
    );
  }
  if (jobs.length === 0) return <p className={style.nothing}>{none}</p>;
  return (
    <div className={style.jobs}>
      {jobs.map((job) => (
        <Link key={job.id} to="/jobs/$id" params={{ id: job.id }}>
          <StatusBadge status={job.status} plain />
          <span className={`${style.jobName} clip`}>
            {job.name}
            {job.status === "failed" && job.result && (
              <span className="quiet"> {resultText(job.result, t)}</span>
            )}
          </span>
          <span className="quiet">
            <RelativeTime at={isLive(job.status) ? job.created_at : (job.finished_at ?? job.updated_at)} />
          </span>
          <span className={style.took}>
            <Elapsed from={job.started_at} to={isLive(job.status) ? null : job.finished_at} />
          </span>
        </Link>
      ))}
    </div>
  );
}
