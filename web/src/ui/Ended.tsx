/** The end of a job or run, and the runs that it started. */

import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import type { Ended } from "../api/schema";
import style from "./Ended.module.css";
import { StatusBadge } from "./Status";
import { RelativeTime } from "./Time";

/** Runs shown; one end can start a thousand. */
const RUNS_SHOWN = 5;

/** A job or run that ended: name with a link, status, time. */
export function EndedLink({ ended }: { ended: Ended }) {
  const { t } = useTranslation();
  const { job_id, run_id, name } = ended;
  return (
    <span className={style.end}>
      {run_id ? (
        <span>
          {t("trigger.kind.workflow")}{" "}
          <Link to="/runs/$id" params={{ id: run_id }}>
            {name}
          </Link>
        </span>
      ) : (
        <span>
          {t("trigger.kind.job")}{" "}
          <Link to="/jobs/$id" params={{ id: job_id ?? "" }}>
            {name}
          </Link>
        </span>
      )}
      <StatusBadge status={ended.status} plain />
      <span className="quiet">
        <RelativeTime at={ended.at} />
      </span>
    </span>
  );
}

/** Links to the runs that the end of a job or run started. */
export function StartedRuns({ ids }: { ids: readonly string[] }) {
  const { t } = useTranslation();
  const more = ids.length - RUNS_SHOWN;
  return (
    <span className={style.end}>
      {ids.slice(0, RUNS_SHOWN).map((id) => (
        <Link key={id} to="/runs/$id" params={{ id }} className="mono">
          …{id.slice(-8)}
        </Link>
      ))}
      {more > 0 && <span className="quiet">{t("step.more", { count: more })}</span>}
    </span>
  );
}
