/** Runs as bars, the newest last: the height is how long they took, colour and shape how they ended. */

import { Link } from "@tanstack/react-router";
import type { ComponentProps } from "react";
import { useTranslation } from "react-i18next";

import type { JobStatus, RunStatus, Schedule, ScheduleRun } from "../../api/schema";
import { usePreferences } from "../../lib/preferences";
import { formatDuration } from "../../lib/quantities";
import { formatExact } from "../../lib/time";
import style from "./schedules.module.css";

/** `runs` has the newest first. */
export function ScheduleRunBars({ runs, linked }: { runs: readonly ScheduleRun[]; linked?: boolean }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const longest = Math.max(1, ...runs.map(runDuration));
  const words = (run: ScheduleRun) =>
    [
      formatExact(run.scheduled_for, language, zone),
      run.run_id ? t(`runStatus.${run.status as RunStatus}`) : t(`status.${run.status as JobStatus}`),
      run.started_at && run.finished_at ? formatDuration(runDuration(run)) : null,
    ]
      .filter(Boolean)
      .join(" · ");
  const bars = [...runs].reverse().map((run) => {
    const bar = <i style={{ height: `${16 + 84 * Math.sqrt(runDuration(run) / longest)}%` }} />;
    const id = run.run_id ?? run.job_id ?? "";
    return linked ? (
      <Link
        key={id}
        to={run.run_id ? "/runs/$id" : "/jobs/$id"}
        params={{ id }}
        data-result={run.status}
        title={words(run)}
        aria-label={words(run)}
      >
        {bar}
      </Link>
    ) : (
      <span key={id} data-result={run.status} title={words(run)}>
        {bar}
      </span>
    );
  });
  const ended = runs.filter((run) => run.status === "failed").length;
  return linked ? (
    <nav className={style.runs} data-large aria-label={t("schedule.recentRuns")}>
      {bars}
    </nav>
  ) : (
    <span
      className={style.runs}
      role="img"
      aria-label={t("schedule.runsLabel", { count: runs.length, failed: ended })}
    >
      {bars}
    </span>
  );
}

interface AllRunsLinkProps extends Omit<ComponentProps<typeof Link>, "to" | "search" | "params"> {
  schedule: Schedule;
  /** Only those that are not over. */
  activeOnly?: boolean;
}

/** Leads to the list of its runs: of jobs, or of runs of its workflow. */
export function AllRunsLink({ schedule: { id, spec }, activeOnly, ...rest }: AllRunsLinkProps) {
  if (spec?.workflow) {
    const status = activeOnly ? "waiting,running,paused,stopping" : undefined;
    return <Link {...rest} to="/runs" search={{ schedule: id, status }} />;
  }
  const status = activeOnly ? "ready,waiting,running,retrying" : undefined;
  return <Link {...rest} to="/jobs" search={{ schedule: id, status }} />;
}

/** How long it took, or has taken so far. */
function runDuration(run: ScheduleRun): number {
  if (!run.started_at) return 0;
  return (run.finished_at ? Date.parse(run.finished_at) : Date.now()) - Date.parse(run.started_at);
}
