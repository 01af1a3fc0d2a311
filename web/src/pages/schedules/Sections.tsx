/** Tabs: schedules, timetable, calendars. */

import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import { useNamespace } from "../../app/namespace";
import { scopedSearch } from "../../lib/namespaces";
import style from "./schedules.module.css";

const SECTIONS = [
  { to: "/schedules", key: "schedules" },
  { to: "/schedules/timetable", key: "timetable" },
  { to: "/calendars", key: "calendars" },
] as const;

export function Sections() {
  const { t } = useTranslation();
  const [namespace] = useNamespace();
  return (
    <nav className={style.sections} aria-label={t("nav.schedules")}>
      {SECTIONS.map(({ to, key }) => (
        <Link
          key={to}
          to={to}
          search={scopedSearch(to, namespace)}
          activeOptions={{ exact: true, includeSearch: false }}
        >
          {t(`nav.${key}`)}
        </Link>
      ))}
    </nav>
  );
}
