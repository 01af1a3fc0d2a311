/** Tabs: schedules, timetable, calendars. */

import { useTranslation } from "react-i18next";

import { SectionTabs } from "../../ui/SectionTabs";

const SECTIONS = [
  { to: "/schedules", key: "schedules" },
  { to: "/schedules/timetable", key: "timetable" },
  { to: "/calendars", key: "calendars" },
] as const;

export function Sections() {
  const { t } = useTranslation();
  return (
    <SectionTabs
      label={t("nav.schedules")}
      sections={SECTIONS.map(({ to, key }) => ({ to, label: t(`nav.${key}`) }))}
    />
  );
}
