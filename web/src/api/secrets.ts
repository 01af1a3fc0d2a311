/** Requests for secrets. Answers never contain a value, and there are no events for secrets. */

import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { isAllNamespaces } from "../lib/namespaces";
import { preconditions } from "./alerts";
import { api, unwrap } from "./client";
import { queryClient } from "./queries";
import type { SecretSpec } from "./schema";

const REFETCH_MS = 15_000;
const SECRETS = "secrets";

export const secretsQuery = (namespace?: string) =>
  queryOptions({
    queryKey: [SECRETS, isAllNamespaces(namespace) ? undefined : namespace],
    queryFn: () => {
      const query = { namespace: isAllNamespaces(namespace) ? undefined : namespace };
      return unwrap(api.GET("/api/v1/secrets", { params: { query } }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });

/** Creates a secret (`version` null), or replaces the secret with this version. Hidden values stay as stored. */
export async function saveSecret(spec: SecretSpec, version: number | null): Promise<void> {
  const params = { path: { name: spec.name }, query: { namespace: spec.namespace } };
  const headers = preconditions(version);
  await unwrap(api.PUT("/api/v1/secrets/{name}", { params, headers, body: spec }));
  await queryClient.invalidateQueries({ queryKey: [SECRETS] });
}

export async function deleteSecret(name: string, namespace: string): Promise<void> {
  const params = { path: { name }, query: { namespace } };
  await unwrap(api.DELETE("/api/v1/secrets/{name}", { params }));
  await queryClient.invalidateQueries({ queryKey: [SECRETS] });
}
