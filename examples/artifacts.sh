#!/usr/bin/env bash
# Artifacts: inputs and outputs of a job. The worker downloads the program and its data before the execution
# and verifies their SHA-256. After the job succeeds, the worker stores its output as an artifact.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf '#!/bin/sh\nsort -n "$1" | tail -n 1 > largest.txt\n' > "$work/largest.sh"
printf '17\n4\n42\n8\n' > "$work/numbers.txt"
belfry artifact push largest.sh "$work/largest.sh"
belfry artifact push numbers "$work/numbers.txt"

cat > "$work/job.yaml" <<'YAML'
name: largest
inputs:
  - { artifact: largest.sh, path: largest.sh, executable: true }
  - { artifact: numbers, path: in/numbers.txt }
outputs:
  - { artifact: largest-number, path: largest.txt }
run:
  process:
    command: [./largest.sh, in/numbers.txt]
YAML
belfry submit -f "$work/job.yaml" --wait

belfry artifact get largest-number "$work/result.txt"
echo "the largest number is $(cat "$work/result.txt")"
[ "$(cat "$work/result.txt")" = 42 ]
