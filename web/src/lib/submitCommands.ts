/** The same request for a terminal. */

import type { JobSpec } from "../api/schema";
import { quote } from "./shell";
import { toYaml } from "./spec";

/** A submission by the command line, whatever the spec is. */
export function toSubmitCommand(spec: JobSpec): string {
  return `belfry submit -f - <<'BELFRY_JOB'\n${toYaml(spec)}BELFRY_JOB`;
}

/** The submission of a further job like this one: without the key and the time of the first. */
export function toResubmitCommand(spec: JobSpec): string {
  return toSubmitCommand({ ...spec, idempotency_key: null, run_at: null });
}

/** A submission by curl; the token comes from the environment, never from here. */
export function toCurlCommand(spec: JobSpec, server: string): string {
  return [
    `curl --fail-with-body ${quote(`${server}/api/v1/jobs`)}`,
    `  --header "Authorization: Bearer $BELFRY_TOKEN"`,
    `  --header 'Content-Type: application/json'`,
    `  --data ${quote(JSON.stringify(spec))}`,
  ].join(" \\\n");
}
