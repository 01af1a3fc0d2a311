/** Runs as bars, the newest last: the height is how long they took, colour and shape how they ended. */

import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import type { Job } from "../../api/schema";
import { usePreferences } from "../../lib/preferences";
import { formatDuration } from "../../lib/quantities";
import { exact } from "../../lib/time";
import style from "./schedules.module.css";

export function Runs({ jobs, linked }: { jobs: readonly Job[]; linked?: boolean }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const longest = Math.max(1, ...jobs.map(length));
  const words = (job: Job) =>
    [
      exact(job.origin?.scheduled_for ?? job.created_at, language, zone),
      t(`status.${job.status}`),
      job.started_at && job.finished_at ? formatDuration(length(job)) : null,
    ]
      .filter(Boolean)
      .join(" · ");
  const bars = [...jobs].reverse().map((job) => {
    const bar = <i style={{ height: `${16 + 84 * Math.sqrt(length(job) / longest)}%` }} />;
    return linked ? (
      <Link
        key={job.id}
        to="/jobs/$id"
        params={{ id: job.id }}
        data-result={job.status}
        title={words(job)}
        aria-label={words(job)}
      >
        {bar}
      </Link>
    ) : (
      <span key={job.id} data-result={job.status} title={words(job)}>
        {bar}
      </span>
    );
  });
  const ended = jobs.filter((job) => job.status === "failed").length;
  return linked ? (
    <nav className={style.runs} data-large aria-label={t("schedule.recentRuns")}>
      {bars}
    </nav>
  ) : (
    <span
      className={style.runs}
      role="img"
      aria-label={t("schedule.runsLabel", { count: jobs.length, failed: ended })}
    >
      {bars}
    </span>
  );
}

/** How long it took, or has taken so far. */
function length(job: Job): number {
  if (!job.started_at) return 0;
  return (job.finished_at ? Date.parse(job.finished_at) : Date.now()) - Date.parse(job.started_at);
}
