/** Hooks for the namespace that lists show. */

import { useQuery } from "@tanstack/react-query";
import { useNavigate, useRouterState } from "@tanstack/react-router";

import { namespacesQuery } from "../api/statistics";
import { ALL_NAMESPACES, hasSeveralNamespaces, isAllNamespaces, SCOPED_LISTS } from "../lib/namespaces";
import { setPreferences, usePreferences } from "../lib/preferences";

/** Returns the current namespace, null for all: that of the list on the page, else the remembered one. */
export function useNamespace(): [namespace: string | null, choose: (value: string) => void] {
  const { namespace: remembered } = usePreferences();
  const navigate = useNavigate();
  const { pathname, search } = useRouterState({ select: ({ location }) => location });
  const isList = SCOPED_LISTS.has(pathname);
  const shown = isList ? (search as { namespace?: string }).namespace : remembered;
  const choose = (value: string) => {
    const next = value === ALL_NAMESPACES ? null : value;
    setPreferences({ namespace: next });
    if (!isList) return;
    const namespace = next ?? undefined;
    void navigate({ to: pathname, search: { ...search, namespace } as Record<string, unknown> });
  };
  return [isAllNamespaces(shown) ? null : (shown ?? null), choose];
}

/**
 * Returns whether a list with this namespace filter has rows of several namespaces. Statistics know the namespaces with
 * jobs, the loaded rows also others.
 */
export function useHasNamespaces(
  namespace: string | undefined,
  rows: ReadonlyArray<{ namespace: string }> | undefined,
): boolean {
  const { data } = useQuery({ ...namespacesQuery, enabled: isAllNamespaces(namespace) });
  if (!isAllNamespaces(namespace)) return false;
  return (data?.length ?? 0) > 1 || hasSeveralNamespaces(rows ?? []);
}
