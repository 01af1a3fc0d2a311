/** The next firings in the schedule's zone, with effects of clock changes and calendars. */

import { Tooltip } from "@mantine/core";
import { useTranslation } from "react-i18next";

import type { Preview, Schedule } from "../../api/schema";
import { warningText } from "../../lib/codeTexts";
import { usePreferences } from "../../lib/preferences";
import { formatDay, inZones, toWallTime, type Zone, zoneName } from "../../lib/time";
import { Card, Loading, ErrorBox } from "../../ui/kit";
import { RelativeTime } from "../../ui/Time";
import style from "./schedule.module.css";

const ADJUSTMENTS = ["gap_shifted", "overlap_first", "overlap_second", "rolled", "clock_change"] as const;

interface Props {
  schedule: Schedule;
  preview: Preview | undefined;
  error: unknown;
}

export function NextFirings({ schedule, preview, error }: Props) {
  const { t } = useTranslation();
  const { zone } = usePreferences();
  // The pause has its own localized text here.
  const warnings = preview?.warnings?.filter(({ code }) => code !== "paused");
  return (
    <Card title={t("schedule.nextTimes")} aside={zoneName(zone)}>
      {error && !preview ? <ErrorBox error={error} /> : null}
      {!preview && !error && <Loading rows={5} />}
      {preview && schedule.status === "paused" && preview.firings.length > 0 && (
        <p className={style.hint}>{t("schedule.nextIfResumed")}</p>
      )}
      {preview && <FiringList preview={{ ...preview, warnings }} none={t("schedule.noneNext")} />}
    </Card>
  );
}

export function FiringList({ preview, none }: { preview: Preview; none: string }) {
  const { t } = useTranslation();
  return (
    <>
      {preview.warnings?.map((warning) => (
        <p key={warning.message} className={style.warning}>
          {warningText(warning, t)}
        </p>
      ))}
      {preview.firings.length === 0 && <p className="quiet">{none}</p>}
      <ol className={style.firings} data-testid="firings">
        {preview.firings.map((firing) => {
          const adjustments = ADJUSTMENTS.filter((adjustment) => firing.adjustments?.includes(adjustment));
          return (
            <li key={firing.at + firing.local}>
              <WallTime at={firing.at} zone={preview.zone} />
              <span className="quiet">
                <RelativeTime at={firing.at} light />
              </span>
              {adjustments.length > 0 && (
                <span className={style.adjustments}>
                  {adjustments.map((adjustment) => (
                    <Tooltip key={adjustment} label={t(`markHint.${adjustment}`)}>
                      <span tabIndex={0}>{t(`mark.${adjustment}`)}</span>
                    </Tooltip>
                  ))}
                </span>
              )}
            </li>
          );
        })}
      </ol>
    </>
  );
}

/** Day and time of day in the chosen zone; on hover in the zone of the schedule and of the browser. */
function WallTime({ at, zone: schedule }: { at: string; zone: Zone }) {
  const { language, zone } = usePreferences();
  const local = toWallTime(Date.parse(at), zone, "second");
  const time = local.slice(11, 19);
  return (
    <time dateTime={at} title={inZones(at, language, [schedule, "local"])} className="num">
      {formatDay(local.slice(0, 10), language)}{" "}
      <strong>{time.endsWith(":00") ? time.slice(0, 5) : time}</strong>
    </time>
  );
}
