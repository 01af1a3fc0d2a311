/** Tabs: inbox, rules, channels, monitors, silences, notifications. */

import { useTranslation } from "react-i18next";

import { SectionTabs } from "../../ui/SectionTabs";

const SECTIONS = [
  { to: "/alerts", key: "inbox" },
  { to: "/alerts/rules", key: "rules" },
  { to: "/alerts/channels", key: "channels" },
  { to: "/alerts/monitors", key: "monitors" },
  { to: "/alerts/silences", key: "silences" },
  { to: "/alerts/notifications", key: "notifications" },
] as const;

export function Sections() {
  const { t } = useTranslation();
  return (
    <SectionTabs
      label={t("nav.alerts")}
      sections={SECTIONS.map(({ to, key }) => ({ to, label: t(`nav.${key}`) }))}
    />
  );
}
