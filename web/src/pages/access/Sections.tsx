/** Tabs: accounts, roles, tokens, audit log. */

import { useTranslation } from "react-i18next";

import { SectionTabs } from "../../ui/SectionTabs";

const SECTIONS = [
  { to: "/access", key: "accounts" },
  { to: "/access/roles", key: "roles" },
  { to: "/access/tokens", key: "tokens" },
  { to: "/access/audit", key: "audit" },
] as const;

export function Sections() {
  const { t } = useTranslation();
  return (
    <SectionTabs
      label={t("nav.access")}
      sections={SECTIONS.map(({ to, key }) => ({ to, label: t(`nav.${key}`) }))}
    />
  );
}
