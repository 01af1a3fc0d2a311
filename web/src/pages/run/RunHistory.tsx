/** Status transitions of a run, with the time between them. */

import { useTranslation } from "react-i18next";

import type { RunHistoryEntry } from "../../api/schema";
import { formatDuration } from "../../lib/quantities";
import { transitionDetail } from "../../lib/serverMessages";
import { RunBadge } from "../../ui/Status";
import { AbsoluteTime } from "../../ui/Time";
import style from "../job/job.module.css";

export function RunHistory({ entries }: { entries: readonly RunHistoryEntry[] }) {
  const { t } = useTranslation();
  return (
    <ol className={style.timeline} data-testid="history">
      {entries.map((entry, i) => {
        const previous = entries[i - 1];
        const gap = previous ? Date.parse(entry.at) - Date.parse(previous.at) : null;
        return (
          <li key={i}>
            <span className={`${style.gap} num`}>{gap === null ? "" : `+${formatDuration(gap)}`}</span>
            <span className={style.to}>
              <RunBadge status={entry.to} plain />
            </span>
            <span>
              {t(`runCause.${entry.cause}`)}
              {transitionDetail(entry, t) && <span className="quiet"> · {transitionDetail(entry, t)}</span>}
            </span>
            <span className={style.when}>
              <AbsoluteTime at={entry.at} />
            </span>
          </li>
        );
      })}
    </ol>
  );
}
