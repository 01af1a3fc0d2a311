/** Gantt chart of a job's executions: waiting and running time. */

import { Tooltip } from "@mantine/core";
import { Fragment } from "react";
import { useTranslation } from "react-i18next";

import { useWorkerName } from "../../api/queries";
import type { Execution, Job } from "../../api/schema";
import { useNow } from "../../lib/now";
import { formatDuration } from "../../lib/quantities";
import { isLive } from "../../lib/statuses";
import { axis, executionBars } from "./bars";
import { ExecutionBadge, executionTone } from "../../ui/Status";
import { PreemptedBy } from "./PreemptedBy";
import style from "./gantt.module.css";

interface Props {
  job: Job;
  executions: readonly Execution[];
  selected: number | undefined;
  onSelect: (number: number) => void;
}

export function Gantt({ job, executions, selected, onSelect }: Props) {
  const { t } = useTranslation();
  const tick = useNow();
  const workerName = useWorkerName();
  const live = isLive(job.status);
  const now = Math.max(tick, Date.parse(job.updated_at));
  const { bars, from, to } = executionBars(job, executions, live ? now : null);
  const { ticks } = axis(to - from);
  const at = (time: number) => `${(Math.max(0, Math.min(1, (time - from) / (to - from))) * 100).toFixed(3)}%`;

  return (
    <div className={style.gantt}>
      <div className={style.axis} aria-hidden>
        {ticks.map((ms) => (
          <span key={ms} style={{ left: `${(ms / (to - from)) * 100}%` }}>
            {ms === 0 ? "0" : formatDuration(ms)}
          </span>
        ))}
      </div>
      {bars.map(({ execution, waitingSince, assigned, started, ended }) => (
        <Fragment key={execution.id}>
          <button
            type="button"
            className={style.row}
            aria-pressed={selected === execution.number}
            onClick={() => onSelect(execution.number)}
          >
            <span className={style.name}>
              <span className="num">{t("job.attempt", { number: execution.number })}</span>
              <ExecutionBadge status={execution.status} />
            </span>
            <Tooltip
              label={
                <span className={style.tip}>
                  {t("job.ganttTip", {
                    waited: formatDuration(assigned - waitingSince),
                    ran: formatDuration(ended - started),
                    worker: workerName(execution.worker_id),
                  })}
                </span>
              }
            >
              <span className={style.track}>
                {ticks.map((ms) => (
                  <i key={ms} className={style.grid} style={{ left: `${(ms / (to - from)) * 100}%` }} />
                ))}
                <span
                  className={style.wait}
                  style={{ left: at(waitingSince), right: `calc(100% - ${at(started)})` }}
                />
                <span
                  className={style.bar}
                  data-tone={executionTone(execution.status)}
                  style={{ left: at(started), right: `calc(100% - ${at(ended)})` }}
                />
              </span>
            </Tooltip>
            <span className={`${style.took} num`}>{formatDuration(ended - started)}</span>
          </button>
          {execution.preempted_by && (
            <p className={style.note}>
              <PreemptedBy job={execution.preempted_by} />
            </p>
          )}
        </Fragment>
      ))}
    </div>
  );
}
