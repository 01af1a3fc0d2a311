#!/usr/bin/env bash
# What `make run` does once the binary is built: starts `belfry dev`, runs three sample jobs
# through the real command line, says what to type next, and stays until Ctrl-C.
#
# usage: scripts/run.sh BELFRY DATA_DIR LISTEN
set -euo pipefail

# Whether every user may pass through a folder and all above it.
open_to_all() {
  local folder=$1
  while [[ $folder != / ]]; do
    (($(stat -c '0%a' "$folder") & 1)) || return 1
    folder=$(dirname "$folder")
  done
}

belfry=$(realpath "$1")
listen=$3
mkdir -p "$2"
data=$(realpath "$2")
if ((EUID == 0)) && ! open_to_all "$data"; then
  # Tasks of a worker that runs as root run as `nobody`, who could not reach their own folders there.
  rmdir --ignore-fail-on-non-empty "$data"
  data=/var/tmp/belfry-run
  mkdir -p "$data"
  [[ -O $data ]] || data=$(mktemp -d)
  chmod 755 "$data"
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
log=$data/dev.log
dev=

# Ends the server and the worker in good order, however this script ends.
stop() {
  trap - EXIT INT TERM
  if [[ -n $dev ]] && kill -0 "$dev" 2>/dev/null; then
    kill -TERM "$dev"
    wait "$dev" || true
  fi
}

fail() {
  echo "error: $1" >&2
  if [[ -s $log ]]; then
    echo "its last words ($log):" >&2
    tail -n 20 "$log" | sed 's/^/  /' >&2
  fi
  stop
  exit 1
}

trap stop EXIT
trap 'echo; echo "stopping"; exit 0' INT TERM

rm -f "$data/address"
# Its own process group would keep Ctrl-C from it; it gets the signal once, from `stop`.
setsid "$belfry" dev --data "$data" --listen "$listen" >"$log" 2>&1 &
dev=$!

echo "starting belfry dev (data in $data)"
deadline=$((SECONDS + 60))
until [[ -s $data/address && -s $data/admin-token ]] && BELFRY_URL="http://$(<"$data/address")" BELFRY_TOKEN="$(<"$data/admin-token")" \
  "$belfry" worker list -o name >"$data/.workers" 2>/dev/null && [[ -s $data/.workers ]]; do
  kill -0 "$dev" 2>/dev/null || fail "belfry dev ended before it was ready; is $listen in use? choose another: make run BELFRY_LISTEN=127.0.0.1:0"
  ((SECONDS < deadline)) || fail "belfry dev was not ready within 60 seconds"
  sleep 0.1
done
rm -f "$data/.workers"

export BELFRY_URL BELFRY_TOKEN
BELFRY_URL="http://$(<"$data/address")"
BELFRY_TOKEN="$(<"$data/admin-token")"

for sample in hello script retry; do
  echo
  echo "\$ belfry submit -f examples/$sample.yaml --follow"
  "$belfry" submit -f "examples/$sample.yaml" --follow || fail "the sample job examples/$sample.yaml did not succeed"
done

echo
"$belfry" job list
cat <<TEXT

Belfry is running: one server and one worker, three sample jobs done.
  dashboard    $BELFRY_URL/#token=$BELFRY_TOKEN
  API          $BELFRY_URL/docs
  data, log    $data, $log

In another terminal, here:

  export PATH="$(dirname "$belfry"):\$PATH" BELFRY_URL=$BELFRY_URL BELFRY_TOKEN="\$(cat '$data/admin-token')"
  belfry submit --follow -- echo 'hello from Belfry'
  belfry job list

Ctrl-C stops both. What ran is kept in $data and goes on with the next \`make run\`.
TEXT

wait "$dev" && code=0 || code=$?
dev=
((code == 0)) || fail "belfry dev ended with exit code $code"
