#!/usr/bin/env bash
# The same without the command line: the REST API by curl. Submits a job under an idempotency key,
# twice, and reads its status and its log.
set -euo pipefail
: "${BELFRY_URL:?set BELFRY_URL to the address of the server}"
: "${BELFRY_TOKEN:?set BELFRY_TOKEN to an admin token}"

api() {
  curl --silent --show-error --fail-with-body --header "Authorization: Bearer $BELFRY_TOKEN" "$@"
}

submit() {
  api --request POST "$BELFRY_URL/api/v1/jobs" \
    --header 'Content-Type: application/json' --header "Idempotency-Key: \"$1\"" \
    --data '{"name": "by-curl", "run": {"process": {"command": ["echo", "hello by curl"]}}}'
}

key="example-$$-$RANDOM"
first=$(submit "$key")
again=$(submit "$key")
echo "first:  $first"
echo "again:  $again"
job=$(sed -E 's/.*"id": *"(job_[0-9a-z]+)".*/\1/' <<<"$first")
[[ $again == *"$job"* ]]

# Follows the log until the job has ended: server-sent events, the last of them `end`.
api --no-buffer "$BELFRY_URL/api/v1/jobs/$job/logs?follow=true"
api "$BELFRY_URL/api/v1/jobs/$job" | grep -q '"status": *"succeeded"'
