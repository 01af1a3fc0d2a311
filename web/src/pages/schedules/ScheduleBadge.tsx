/** Status badge of a schedule: an icon, a text and a colour. */

import { CircleCheckBig, CirclePause, Radio, TimerOff } from "lucide-react";
import { useTranslation } from "react-i18next";

import type { ScheduleHealth, ScheduleStatus } from "../../api/schema";
import { ToneBadge } from "../../ui/Status";

const STATUS_BADGES = {
  active: { tone: "succeeded", icon: Radio },
  paused: { tone: "waiting", icon: CirclePause },
  completed: { tone: "cancelled", icon: CircleCheckBig },
} as const;

export function ScheduleBadge({ status, plain }: { status: ScheduleStatus; plain?: boolean }) {
  const { t } = useTranslation();
  const { tone, icon } = STATUS_BADGES[status];
  return <ToneBadge tone={tone} icon={icon} word={t(`scheduleStatus.${status}`)} plain={plain} />;
}

/** Number of late and stuck runs, if there are any. */
export function HealthBadges({ health }: { health: ScheduleHealth | null | undefined }) {
  const { t } = useTranslation();
  const late = health?.late_runs.length ?? 0;
  const stuck = health?.stuck_runs.length ?? 0;
  return (
    <>
      {late > 0 && <ToneBadge tone="retrying" icon={TimerOff} word={t("schedule.late", { count: late })} />}
      {stuck > 0 && <ToneBadge tone="failed" icon={TimerOff} word={t("schedule.stuck", { count: stuck })} />}
    </>
  );
}
