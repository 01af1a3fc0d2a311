/** The namespace of a new rule, channel, silence or secret: one in which the caller may create it. */

import { Autocomplete } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";

import { meQuery } from "../../api/queries";
import type { Resource, Verb } from "../../api/schema";
import { namespacesQuery } from "../../api/statistics";
import { useNamespace } from "../../app/namespace";
import { ALL_NAMESPACES, namespaceChoices } from "../../lib/namespaces";
import { can, canSomewhere, isSingle, namespaceForNew, namespacesOf } from "../../lib/rights";

const DEFAULT_NAMESPACE = "default";

interface Props {
  verb: Verb;
  /** Kind of the new object [default: alerts]. */
  on?: Resource;
  value: string;
  onChange: (namespace: string) => void;
  disabled?: boolean;
}

export function NamespaceInput({ verb, on = "alerts", value, onChange, disabled }: Props) {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  const known = useQuery({ ...namespacesQuery, enabled: canSomewhere(me, "read", "jobs") }).data ?? [];
  const permitted = namespacesOf(me, verb, on);
  const choices = permitted.includes(ALL_NAMESPACES)
    ? namespaceChoices([DEFAULT_NAMESPACE, ...known])
    : namespaceChoices([...permitted.filter(isSingle), ...known.filter((name) => can(me, verb, on, name))]);
  return (
    <Autocomplete
      label={t("alertRule.namespace")}
      value={value}
      onChange={onChange}
      data={choices}
      limit={200}
      required
      disabled={disabled}
    />
  );
}

/** Returns the namespace of a new object: that of the lists if the caller may create it there. */
export function useNewNamespace(verb: Verb, on: Resource = "alerts"): string {
  const [shown] = useNamespace();
  const me = useQuery(meQuery).data;
  if (shown !== null && isSingle(shown) && can(me, verb, on, shown)) return shown;
  return namespaceForNew(me, verb, on) ?? DEFAULT_NAMESPACE;
}
