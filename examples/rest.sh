#!/usr/bin/env bash
# The REST API with curl: submits a job twice with the same idempotency key, then reads the status and the log
# of the job.
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

# Follows the log until the job ends. The log is a stream of server-sent events; the last event is `end`.
api --no-buffer "$BELFRY_URL/api/v1/jobs/$job/logs?follow=true"
api "$BELFRY_URL/api/v1/jobs/$job" | grep -q '"status": *"succeeded"'
