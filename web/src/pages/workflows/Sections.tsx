/** Tabs: workflows, and their runs. */

import { useTranslation } from "react-i18next";

import { SectionTabs } from "../../ui/SectionTabs";

const SECTIONS = [
  { to: "/workflows", key: "workflows" },
  { to: "/runs", key: "runs" },
] as const;

export function Sections() {
  const { t } = useTranslation();
  return (
    <SectionTabs
      label={t("nav.workflows")}
      sections={SECTIONS.map(({ to, key }) => ({ to, label: t(`nav.${key}`) }))}
    />
  );
}
