#!/usr/bin/env bash
# Delayed start: a job can be changed or cancelled until it starts.
set -euo pipefail

job=$(belfry submit --name nightly --in 8h -o name -- echo "good morning")
belfry why "$job"
belfry job update "$job" --priority 90
belfry job cancel "$job" --reason "not needed tonight"
belfry job get "$job" -o json | grep -q '"status": *"cancelled"'

# A job that starts after half a second.
belfry submit --name soon --in 500ms --wait -- echo "half a second later"
