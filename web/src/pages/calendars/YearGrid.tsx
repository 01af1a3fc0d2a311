/** The days of a year; the days of a calendar are marked. */

import { useTranslation } from "react-i18next";

import { usePreferences } from "../../lib/preferences";
import { type Day, monthsOf } from "../../lib/year";
import style from "./calendars.module.css";

interface Props {
  year: number;
  /** The days that belong to the calendar. */
  days: ReadonlySet<Day>;
  today: Day;
  /** Last known day; null if all days are known. */
  knownUntil?: Day | null;
}

/** Any Monday, for the names of the weekdays. */
const MONDAY = Date.UTC(2026, 0, 5);

export function YearGrid({ year, days, today, knownUntil }: Props) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const month = new Intl.DateTimeFormat(language, { month: "long", timeZone: "UTC" });
  const initial = new Intl.DateTimeFormat(language, { weekday: "narrow", timeZone: "UTC" });
  const name = new Intl.DateTimeFormat(language, { weekday: "long", timeZone: "UTC" });
  const weekdays = Array.from({ length: 7 }, (_, index) => MONDAY + index * 86_400_000);
  return (
    <div className={style.year} data-testid="year">
      {monthsOf(year).map(({ number, weeks }) => (
        <table key={number}>
          <caption>{month.format(Date.UTC(year, number - 1, 1))}</caption>
          <thead>
            <tr>
              {weekdays.map((day) => (
                <th key={day} scope="col" abbr={name.format(day)}>
                  {initial.format(day)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {weeks.map((week, row) => (
              <tr key={row}>
                {week.map((day, column) =>
                  day === null ? (
                    <td key={column} />
                  ) : (
                    <td
                      key={column}
                      data-in={days.has(day) || undefined}
                      data-today={day === today || undefined}
                      data-unknown={(knownUntil && day > knownUntil) || undefined}
                      title={days.has(day) ? t("calendar.belongs", { day }) : day}
                    >
                      {Number(day.slice(8))}
                    </td>
                  ),
                )}
              </tr>
            ))}
          </tbody>
        </table>
      ))}
    </div>
  );
}
