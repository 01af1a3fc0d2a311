/** Status transitions of a job, with the time between them. */

import { useTranslation } from "react-i18next";

import type { JobEvent } from "../../api/schema";
import { formatDuration } from "../../lib/quantities";
import { preemptingJob, translateMessage } from "../../lib/serverMessages";
import { StatusBadge } from "../../ui/Status";
import { AbsoluteTime } from "../../ui/Time";
import style from "./job.module.css";
import { PreemptedBy } from "./PreemptedBy";

export function Timeline({ events }: { events: readonly JobEvent[] }) {
  const { t } = useTranslation();
  return (
    <ol className={style.timeline} data-testid="timeline">
      {events.map((event, i) => {
        const previous = events[i - 1];
        const gap = previous ? Date.parse(event.at) - Date.parse(previous.at) : null;
        return (
          <li key={i}>
            <span className={`${style.gap} num`}>{gap === null ? "" : `+${formatDuration(gap)}`}</span>
            <span className={style.to}>
              <StatusBadge status={event.to} plain />
            </span>
            <span>
              <CauseText event={event} />
              {event.execution ? (
                <span className="quiet"> · {t("job.attempt", { number: event.execution })}</span>
              ) : null}
            </span>
            <span className={style.when}>
              <AbsoluteTime at={event.at} />
            </span>
          </li>
        );
      })}
    </ol>
  );
}

function CauseText({ event }: { event: JobEvent }) {
  const { t } = useTranslation();
  const { cause, detail } = event;
  const preemptedBy = preemptingJob(event);
  if (preemptedBy) return <PreemptedBy job={preemptedBy} />;
  return (
    <>
      {t(`cause.${cause}`)}
      {detail && cause !== "finish_deadline_passed" && (
        <span className="quiet"> · {translateMessage(detail, t)}</span>
      )}
    </>
  );
}
