/** The switcher of the namespace that lists show. Hidden while there is only one namespace. */

import { Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Layers } from "lucide-react";
import { useTranslation } from "react-i18next";

import { meQuery } from "../api/queries";
import { namespacesQuery } from "../api/statistics";
import { ALL_NAMESPACES, namespaceChoices } from "../lib/namespaces";
import { usePreferences } from "../lib/preferences";
import { isSingle, listedNamespaces } from "../lib/rights";
import { useNamespace } from "./namespace";

/** Choices that are listed at once; further ones are found by their name. */
const LISTED_MAX = 200;

export function NamespaceSwitcher() {
  const { t } = useTranslation();
  const [namespace, choose] = useNamespace();
  const { namespace: remembered } = usePreferences();
  const { data, refetch } = useQuery(namespacesQuery);
  const permitted = listedNamespaces(useQuery(meQuery).data)?.filter(isSingle) ?? [];
  const names = namespaceChoices([...(data ?? []), ...permitted], namespace, remembered);
  if (names.length <= 1 && namespace === null && remembered === null) return null;
  return (
    <Select
      aria-label={t("namespace.choose")}
      leftSection={<Layers size={14} aria-hidden />}
      value={namespace ?? ALL_NAMESPACES}
      onChange={(value) => value && choose(value)}
      onDropdownOpen={() => void refetch()}
      data={[
        { value: ALL_NAMESPACES, label: t("namespace.all") },
        ...names.map((name) => ({ value: name, label: name })),
      ]}
      nothingFoundMessage={t("palette.nothing")}
      limit={LISTED_MAX}
      allowDeselect={false}
      searchable
    />
  );
}
