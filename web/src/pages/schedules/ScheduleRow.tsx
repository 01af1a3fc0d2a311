/** A row of the schedule list. */

import { ActionIcon, Tooltip } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { Pause, Play, Zap } from "lucide-react";
import { type CSSProperties, useState } from "react";
import { useTranslation } from "react-i18next";

import { resumeSchedule } from "../../api/schedules";
import type { Schedule, ScheduleRun } from "../../api/schema";
import { usePreferences } from "../../lib/preferences";
import { formatDuration, parseDuration } from "../../lib/quantities";
import { Allowed } from "../../ui/Allowed";
import { runAction } from "../../ui/notify";
import { RowCheckbox } from "../../ui/RowCheckbox";
import { ScheduleRunBadge } from "../../ui/Status";
import { RelativeTime } from "../../ui/Time";
import { PauseDialog, TriggerDialog } from "../schedule/dialogs";
import { ScheduleRunBars } from "./ScheduleRunBars";
import { HealthBadges, ScheduleBadge } from "./ScheduleBadge";
import style from "./schedules.module.css";

interface Props {
  schedule: Schedule;
  isSelected: boolean;
  onPick: (withRange: boolean) => void;
  style: CSSProperties;
}

/** Time of the last firing, with a link to its run. */
function LastFiring({ firing, run }: { firing: Schedule["last"]; run: ScheduleRun | undefined }) {
  if (!firing) return <span className="quiet">–</span>;
  const when = (
    <span className="quiet">
      <RelativeTime at={firing.scheduled_for} light />
    </span>
  );
  const id = firing.run_id ?? firing.job_id;
  if (!id) return when;
  return (
    <Link to={firing.run_id ? "/runs/$id" : "/jobs/$id"} params={{ id }}>
      {run && <ScheduleRunBadge run={run} plain />}
      {when}
    </Link>
  );
}

export function ScheduleRow({ schedule, isSelected, onPick, style: place }: Props) {
  const { t } = useTranslation();
  const { runs, health } = schedule;
  const { job_id, run_id } = schedule.last ?? {};
  const last = runs?.find((run) => (run_id ? run.run_id === run_id : run.job_id === job_id));
  return (
    <div
      className={style.row}
      role="row"
      style={place}
      data-status={schedule.status}
      data-selected={isSelected || undefined}
    >
      <span role="cell">
        <RowCheckbox label={t("bulk.select", { name: schedule.name })} checked={isSelected} onPick={onPick} />
      </span>
      <span role="cell" className={style.name}>
        <span className={style.title}>
          <Link to="/schedules/$id" params={{ id: schedule.id }} className="clip">
            {schedule.name}
          </Link>
          {schedule.status !== "active" && <ScheduleBadge status={schedule.status} />}
          <HealthBadges health={health} />
        </span>
        <span className={`${style.when} clip`}>
          <code>{schedule.when}</code>
          {schedule.zone !== "UTC" && <span> {schedule.zone}</span>}
          {schedule.namespace !== "default" && <span className={style.ofName}> · {schedule.namespace}</span>}
        </span>
      </span>
      <span role="cell" className={`${style.namespace} quiet clip`}>
        {schedule.namespace}
      </span>
      <span role="cell" className={style.next}>
        <span className={style.caption}>{t("schedule.columns.next")} </span>
        <RelativeTime at={schedule.next_at} />
      </span>
      <span role="cell" className={style.last}>
        <LastFiring firing={schedule.last} run={last} />
      </span>
      <span role="cell" className={style.strip}>
        {runs && runs.length > 0 && <ScheduleRunBars runs={runs} />}
      </span>
      <span role="cell" className={style.success}>
        <SuccessRate schedule={schedule} />
      </span>
      <span role="cell" className={`${style.usual} num`}>
        {schedule.statistics.duration_p50
          ? formatDuration(parseDuration(schedule.statistics.duration_p50) ?? 0)
          : "–"}
      </span>
      <span role="cell" className={style.acts}>
        <Allowed verb="operate" on="schedules" in={schedule.namespace}>
          <RowActions schedule={schedule} />
        </Allowed>
      </span>
    </div>
  );
}

/** Success rate, and the number of consecutive failures. */
export function SuccessRate({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const { success_rate: rate, streak } = schedule.statistics;
  if (rate === undefined || rate === null) return <span className="quiet">–</span>;
  const percent = new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: 1 });
  return (
    <span className="num">
      {/* Rounded down: only a schedule without failures has 100 %. */}
      {percent.format(Math.floor(rate * 1_000) / 1_000)}
      {streak < 0 && <span className={style.bad}> {t("schedule.failing", { count: -streak })}</span>}
    </span>
  );
}

function RowActions({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState<"trigger" | "pause" | null>(null);
  const { id, name } = schedule;
  return (
    <>
      <Tooltip label={t("schedule.trigger")}>
        <ActionIcon aria-label={t("schedule.triggerOf", { name })} onClick={() => setOpen("trigger")}>
          <Zap size={15} />
        </ActionIcon>
      </Tooltip>
      {schedule.status === "paused" ? (
        <Tooltip label={t("schedule.resume")}>
          <ActionIcon
            aria-label={t("schedule.resumeOf", { name })}
            onClick={() => void runAction(() => resumeSchedule(id), t("schedule.resumed", { name }))}
          >
            <Play size={15} />
          </ActionIcon>
        </Tooltip>
      ) : (
        <Tooltip label={t("schedule.pause")}>
          <ActionIcon
            aria-label={t("schedule.pauseOf", { name })}
            disabled={schedule.status === "completed"}
            onClick={() => setOpen("pause")}
          >
            <Pause size={15} />
          </ActionIcon>
        </Tooltip>
      )}
      {open === "trigger" && <TriggerDialog schedule={schedule} onClose={() => setOpen(null)} />}
      {open === "pause" && <PauseDialog schedule={schedule} onClose={() => setOpen(null)} />}
    </>
  );
}
