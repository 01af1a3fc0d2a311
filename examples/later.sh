#!/usr/bin/env bash
# A job for later can still be changed, and cancelled before it ever starts.
set -euo pipefail

job=$(belfry submit --name nightly --in 8h -o name -- echo "good morning")
belfry why "$job"
belfry job update "$job" --priority 90
belfry job cancel "$job" --reason "not needed tonight"
belfry job get "$job" -o json | grep -q '"status": *"cancelled"'

# In half a second instead: this one runs.
belfry submit --name soon --in 500ms --wait -- echo "half a second later"
