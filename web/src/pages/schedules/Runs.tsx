/** Runs as bars, the newest last: the height is how long they took, colour and shape how they ended. */

import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import type { Job, ScheduleRun } from "../../api/schema";
import { usePreferences } from "../../lib/preferences";
import { formatDuration } from "../../lib/quantities";
import { exact } from "../../lib/time";
import style from "./schedules.module.css";

/** A run from its job. */
export function runOf({ id, origin, created_at, status, started_at, finished_at }: Job): ScheduleRun {
  return { job_id: id, scheduled_for: origin?.scheduled_for ?? created_at, status, started_at, finished_at };
}

/** `runs` has the newest first. */
export function Runs({ runs, linked }: { runs: readonly ScheduleRun[]; linked?: boolean }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const longest = Math.max(1, ...runs.map(length));
  const words = (run: ScheduleRun) =>
    [
      exact(run.scheduled_for, language, zone),
      t(`status.${run.status}`),
      run.started_at && run.finished_at ? formatDuration(length(run)) : null,
    ]
      .filter(Boolean)
      .join(" · ");
  const bars = [...runs].reverse().map((run) => {
    const bar = <i style={{ height: `${16 + 84 * Math.sqrt(length(run) / longest)}%` }} />;
    return linked ? (
      <Link
        key={run.job_id}
        to="/jobs/$id"
        params={{ id: run.job_id }}
        data-result={run.status}
        title={words(run)}
        aria-label={words(run)}
      >
        {bar}
      </Link>
    ) : (
      <span key={run.job_id} data-result={run.status} title={words(run)}>
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

/** How long it took, or has taken so far. */
function length(run: ScheduleRun): number {
  if (!run.started_at) return 0;
  return (run.finished_at ? Date.parse(run.finished_at) : Date.now()) - Date.parse(run.started_at);
}
