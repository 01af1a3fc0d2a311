/** Runs as bars, newest last: height is the duration, colour and shape the result. */

import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import type { RecentRun } from "../../api/schema";
import { usePreferences } from "../../lib/preferences";
import { formatDuration } from "../../lib/quantities";
import { formatExact } from "../../lib/time";
import style from "./workflows.module.css";

/** `runs` is newest first. */
export function RunBars({ runs }: { runs: readonly RecentRun[] }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const longest = Math.max(1, ...runs.map(runDuration));
  const words = (run: RecentRun) =>
    [
      `#${run.number}`,
      t(`runStatus.${run.status}`),
      formatExact(run.created_at, language, zone),
      run.finished_at ? formatDuration(runDuration(run)) : null,
    ]
      .filter(Boolean)
      .join(" · ");
  return (
    <nav className={style.bars} aria-label={t("workflow.recentRuns")}>
      {[...runs].reverse().map((run) => (
        <Link
          key={run.id}
          to="/runs/$id"
          params={{ id: run.id }}
          data-status={run.status}
          title={words(run)}
          aria-label={words(run)}
        >
          <i style={{ height: `${16 + 84 * Math.sqrt(runDuration(run) / longest)}%` }} />
        </Link>
      ))}
    </nav>
  );
}

function runDuration({ started_at: from, finished_at: to }: RecentRun): number {
  if (!from) return 0;
  return (to ? Date.parse(to) : Date.now()) - Date.parse(from);
}
