/** Tabs: workflows, and their runs. */

import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import style from "../schedules/schedules.module.css";

const SECTIONS = [
  { to: "/workflows", key: "workflows" },
  { to: "/runs", key: "runs" },
] as const;

export function Sections() {
  const { t } = useTranslation();
  return (
    <nav className={style.sections} aria-label={t("nav.workflows")}>
      {SECTIONS.map(({ to, key }) => (
        <Link key={to} to={to} activeOptions={{ exact: true, includeSearch: false }}>
          {t(`nav.${key}`)}
        </Link>
      ))}
    </nav>
  );
}
