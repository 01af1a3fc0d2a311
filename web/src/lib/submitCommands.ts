/** Shell commands that submit a job. */

import type { JobSpec } from "../api/schema";
import { quote } from "./shell";
import { forResubmission, toYaml } from "./spec";

/** Returns a `belfry submit` command for any spec. */
export function toSubmitCommand(spec: JobSpec): string {
  return `belfry submit -f - <<'BELFRY_JOB'\n${toYaml(spec)}BELFRY_JOB`;
}

/** Returns a command that submits another job like this one. */
export function toResubmitCommand(spec: JobSpec): string {
  return toSubmitCommand(forResubmission(spec));
}

/** Returns a curl command. The token comes from the environment and is never part of the command. */
export function toCurlCommand(spec: JobSpec, server: string): string {
  return [
    `curl --fail-with-body ${quote(`${server}/api/v1/jobs`)}`,
    `  --header "Authorization: Bearer $BELFRY_TOKEN"`,
    `  --header 'Content-Type: application/json'`,
    `  --data ${quote(JSON.stringify(spec))}`,
  ].join(" \\\n");
}
