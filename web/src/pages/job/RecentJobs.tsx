/** The newest jobs of the same name as bars, oldest first: height is the duration, colour and shape the result. */

import { Tooltip } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import type { Job } from "../../api/schema";
import { formatDuration } from "../../lib/quantities";
import style from "./job.module.css";

export function RecentJobs({ job, jobs }: { job: Job; jobs: readonly Job[] }) {
  const { t } = useTranslation();
  const took = (each: Job) =>
    each.started_at && each.finished_at ? Date.parse(each.finished_at) - Date.parse(each.started_at) : 0;
  const longest = Math.max(1, ...jobs.map(took));
  return (
    <nav className={style.strip} aria-label={t("job.recentRuns")}>
      {[...jobs].reverse().map((each) => (
        <Tooltip key={each.id} label={`${t(`status.${each.status}`)} · ${formatDuration(took(each))}`}>
          <Link
            to="/jobs/$id"
            params={{ id: each.id }}
            aria-label={`${t(`status.${each.status}`)} ${formatDuration(took(each))}`}
            aria-current={each.id === job.id || undefined}
            data-result={each.status}
          >
            <i style={{ height: `${18 + 82 * Math.sqrt(took(each) / longest)}%` }} />
          </Link>
        </Tooltip>
      ))}
    </nav>
  );
}
