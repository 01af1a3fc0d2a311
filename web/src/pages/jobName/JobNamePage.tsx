/** All jobs of one name in a namespace: totals, history, newest jobs, and what creates them. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { ChevronRight, FilePen, ListChecks, SearchX } from "lucide-react";
import { useTranslation } from "react-i18next";

import { failuresQuery } from "../../api/failures";
import { jobsByNameQuery } from "../../api/queries";
import { namedScheduleQuery, visibleSchedulesQuery } from "../../api/schedules";
import { seriesQuery, type SeriesSubject } from "../../api/statistics";
import type { Job, Schedule, StatisticsCounts } from "../../api/schema";
import { resultText } from "../../lib/serverMessages";
import { usePreferences } from "../../lib/preferences";
import { formatDuration } from "../../lib/quantities";
import { type Sources, sourcesOf } from "../../lib/sources";
import { parseRange, quantiles, type Range, rangeStart, successRate } from "../../lib/statistics";
import { isLive } from "../../lib/statuses";
import { usePageTitle } from "../../lib/title";
import { JobDaysCard } from "../../ui/heatMap/DaysCard";
import { HistoryCard } from "../../ui/charts/History";
import { Card, EmptyState, ErrorBox, Loading, Page } from "../../ui/kit";
import { AllowedSomewhere } from "../../ui/Allowed";
import { CompareBar } from "../../ui/CompareBar";
import { RowCheckbox } from "../../ui/RowCheckbox";
import { FailureLink } from "../../ui/FailureLink";
import { FailureBadge, StatusBadge } from "../../ui/Status";
import { Elapsed, RelativeTime } from "../../ui/Time";
import { useSelection } from "../../ui/useSelection";
import { ScheduleBadge } from "../schedules/ScheduleBadge";
import { ScheduleRunBars } from "../schedules/ScheduleRunBars";
import figures from "../schedule/schedule.module.css";
import style from "./jobName.module.css";

const route = getRouteApi("/jobs/named/$name");

export function JobNamePage() {
  const { t } = useTranslation();
  const { name } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  usePageTitle(name);
  const namespace = search.namespace ?? "default";
  const range = parseRange(search.range);
  const subject: SeriesSubject = { job: name, namespace };
  const jobs = useQuery(jobsByNameQuery(name, namespace));
  const total = useQuery(seriesQuery(subject, range)).data?.series.total;
  const items = jobs.data?.items;
  const newest = items?.[0];

  return (
    <Page
      title={
        <div className={style.crumbs}>
          <Link to="/jobs" className="quiet">
            {t("nav.jobs")}
          </Link>
          <ChevronRight size={14} className="quiet" aria-hidden />
          <h1 className="clip">{name}</h1>
          {namespace !== "default" && <span className="quiet">{namespace}</span>}
        </div>
      }
      actions={
        newest && (
          <>
            <AllowedSomewhere verb="create" on="jobs">
              <Button
                renderRoot={(props) => <Link to="/submit" search={{ from: newest.id }} {...props} />}
                variant="default"
                leftSection={<FilePen size={14} />}
              >
                {t("job.again")}
              </Button>
            </AllowedSomewhere>
            <Button
              renderRoot={(props) => <Link to="/jobs" search={{ name, namespace }} {...props} />}
              variant="default"
              leftSection={<ListChecks size={14} />}
            >
              {t("overview.all")}
            </Button>
          </>
        )
      }
    >
      {total && <Totals total={total} range={range} name={name} namespace={namespace} />}
      {total && newest && lacksStatistics(total, newest, range) && (
        <p className={style.note} role="note">
          {t("jobName.uncounted")}
        </p>
      )}
      <Failures name={name} namespace={namespace} />
      <HistoryCard
        subject={subject}
        charts={["submitted", "ended", "startDelay", "runTime"]}
        range={range}
        onRange={(range) => void navigate({ search: { ...search, range }, replace: true })}
      />
      <JobDaysCard subject={subject} />
      {jobs.error && !items && <ErrorBox error={jobs.error} onRetry={() => void jobs.refetch()} />}
      {!items && !jobs.error && <Loading rows={8} />}
      {items?.length === 0 && (
        <Card>
          <EmptyState icon={SearchX} title={t("jobName.none")}>
            {t("jobName.noneText", { name, namespace })}
          </EmptyState>
        </Card>
      )}
      {items && <CreatedBy sources={sourcesOf(items)} name={name} namespace={namespace} />}
      {items && items.length > 0 && (
        <Card title={t("jobName.newest")} flush>
          <NewestJobs jobs={items} />
        </Card>
      )}
    </Page>
  );
}

/** Age from which a job is in the statistics for certain. */
const COUNTED_AFTER_MS = 60_000;

/** Returns whether jobs of the name are counted together with those of other names. */
function lacksStatistics(total: StatisticsCounts, newest: Job, range: Range): boolean {
  const now = Date.now();
  const created = Date.parse(newest.created_at);
  return total.submitted === 0 && created > rangeStart(range, now) && created < now - COUNTED_AFTER_MS;
}

interface TotalsProps {
  total: StatisticsCounts;
  range: Range;
  name: string;
  namespace: string;
}

/** Totals of the range that the charts show. */
function Totals({ total, range, name, namespace }: TotalsProps) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const rate = successRate(total);
  const percent = new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: 1 });
  const after = new Date(rangeStart(range, Date.now())).toISOString();
  const linked = (status: "failed" | "expired") =>
    total[status] === 0 ? (
      "0"
    ) : (
      <Link to="/jobs" search={{ name, namespace, status, after }}>
        {total[status].toLocaleString(language)}
      </Link>
    );
  const durations = [
    ["startDelay", quantiles(total.start_delay)],
    ["runTime", quantiles(total.run_time)],
  ] as const;
  return (
    <dl
      className={figures.figures}
      aria-label={t("jobName.figures.label", { range: t(`chart.ranges.${range}`) })}
      data-testid="totals"
    >
      <div>
        <dt>{t("jobName.figures.submitted")}</dt>
        <dd className="num">{total.submitted.toLocaleString(language)}</dd>
      </div>
      <div>
        <dt>{t("jobName.figures.successRate")}</dt>
        <dd className="num">
          {rate === null ? <span className="quiet">–</span> : percent.format(rate)}
          <small className="quiet">
            {t("jobName.figures.succeeded")} {total.succeeded.toLocaleString(language)}
          </small>
        </dd>
      </div>
      <div>
        <dt>{t("jobName.figures.failed")}</dt>
        <dd className="num">
          {linked("failed")}
          <small className="quiet">
            {t("jobName.figures.expired")} {linked("expired")}
            {" · "}
            {t("jobName.figures.cancelled")} {total.cancelled.toLocaleString(language)}
          </small>
        </dd>
      </div>
      <div>
        <dt>{t("jobName.figures.retried")}</dt>
        <dd className="num">{total.retried.toLocaleString(language)}</dd>
      </div>
      {durations.map(([kind, of]) => (
        <div key={kind}>
          <dt>{t(`jobName.figures.${kind}`)}</dt>
          <dd className="num">
            {of ? formatDuration(of.p50) : <span className="quiet">–</span>}
            {of && (
              <small className="quiet">{t("schedule.figures.p95", { length: formatDuration(of.p95) })}</small>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Failure groups that are listed. */
const GROUPS = 5;

/** The newest failure groups of the name that are open or known. Their counts include other names. */
function Failures({ name, namespace }: { name: string; namespace: string }) {
  const { t } = useTranslation();
  const { data } = useQuery(failuresQuery({ name, namespace }, GROUPS));
  if (!data || data.items.length === 0) return null;
  return (
    <Card
      title={t("nav.failures")}
      aside={
        <Link to="/failures" search={{ name, namespace, state: "all" }}>
          {t("overview.all")}
        </Link>
      }
      flush
    >
      <ul className={style.failures} aria-label={t("nav.failures")}>
        {data.items.map((group) => (
          <li key={group.id}>
            <FailureBadge group={group} plain />
            <FailureLink group={group} className="clip" />
            <span className="quiet num">{t("failureGroup.count24h", { count: group.last_24h })}</span>
            <span className="quiet">
              <RelativeTime at={group.last_seen} />
            </span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

/** The schedules and workflow steps that created the newest jobs, and the schedule of the same name. */
function CreatedBy({ sources, name, namespace }: { sources: Sources; name: string; namespace: string }) {
  const { t } = useTranslation();
  const named = useQuery(namedScheduleQuery(name, namespace)).data;
  const ids = [...new Set([...sources.schedules, ...(named ? [named.id] : [])])];
  const schedules = useQuery({ ...visibleSchedulesQuery(ids), enabled: ids.length > 0 }).data?.items ?? [];
  if (schedules.length === 0 && sources.steps.length === 0) return null;
  return (
    <Card title={t("jobName.sources")} flush>
      <ul className={style.sources}>
        {schedules.map((schedule) => (
          <ScheduleSource key={schedule.id} schedule={schedule} />
        ))}
        {sources.steps.map(({ workflow, step, run }) => (
          <li key={`${workflow} ${step}`}>
            <span className="quiet">{t("nav.workflows")}</span>
            <span className="clip">
              <Link to="/workflows/$id" params={{ id: workflow }} search={{ namespace, step }}>
                {workflow}
              </Link>{" "}
              <span className="quiet">
                {t("job.fromRun.step")} {step}
              </span>
            </span>
            <span />
            <Link to="/runs/$id" params={{ id: run }} search={{ step }} className="quiet">
              {t("jobName.lastRun")}
            </Link>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function ScheduleSource({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  return (
    <li>
      <ScheduleBadge status={schedule.status} plain />
      <span className="clip">
        <Link to="/schedules/$id" params={{ id: schedule.id }}>
          {schedule.name}
        </Link>{" "}
        <code className="quiet">{schedule.when}</code>
      </span>
      <ScheduleRunBars runs={schedule.runs ?? []} />
      <span className="quiet">
        {schedule.next_at ? <RelativeTime at={schedule.next_at} /> : t("jobName.noNext")}
      </span>
    </li>
  );
}

function NewestJobs({ jobs }: { jobs: readonly Job[] }) {
  const { t } = useTranslation();
  const selection = useSelection();
  return (
    <>
      {selection.ids.size > 0 && (
        <div className={style.bar}>
          <CompareBar selection={selection} />
        </div>
      )}
      <div className={style.jobs} role="table" aria-label={t("jobName.newest")} data-testid="newest">
        {jobs.map((job) => (
          <div key={job.id} role="row" data-selected={selection.ids.has(job.id) || undefined}>
            <span role="cell">
              <RowCheckbox
                label={t("bulk.select", { name: `…${job.id.slice(-8)}` })}
                checked={selection.ids.has(job.id)}
                onPick={() => selection.toggle(job.id)}
              />
            </span>
            <span role="cell">
              <StatusBadge status={job.status} />
            </span>
            <span role="cell" className={style.job}>
              <Link to="/jobs/$id" params={{ id: job.id }} className="mono">
                …{job.id.slice(-8)}
              </Link>
              <span className={`${style.message} clip`}>{resultText(job.result, t)}</span>
            </span>
            <span role="cell" className="quiet">
              {job.executions > 1 && t("job.attempt", { number: job.executions })}
            </span>
            <span role="cell" className="quiet">
              <RelativeTime at={job.created_at} light />
            </span>
            <span role="cell" className={style.took}>
              <Elapsed from={job.started_at} to={isLive(job.status) ? null : job.finished_at} />
            </span>
          </div>
        ))}
      </div>
    </>
  );
}
