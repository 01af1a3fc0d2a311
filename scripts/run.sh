#!/usr/bin/env bash
# Implements `make run` after the build: starts `belfry dev`, runs three sample jobs through the command line,
# prints what to try next, and runs until Ctrl-C.
#
# usage: scripts/run.sh BELFRY DATA_DIR LISTEN
set -euo pipefail

# Succeeds if every user may traverse a folder and all of its parents.
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
  # A worker that runs as root runs its tasks as `nobody`, which could not access its folders there.
  rmdir --ignore-fail-on-non-empty "$data"
  data=/var/tmp/belfry-run
  mkdir -p "$data"
  [[ -O $data ]] || data=$(mktemp -d)
  chmod 755 "$data"
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
log=$data/dev.log
dev=

# Stops the server and the worker gracefully, however this script ends.
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
    echo "last lines of the log ($log):" >&2
    tail -n 20 "$log" | sed 's/^/  /' >&2
  fi
  stop
  exit 1
}

trap stop EXIT
trap 'echo; echo "stopping"; exit 0' INT TERM

rm -f "$data/address"
# In its own session, `belfry dev` does not receive Ctrl-C; `stop` sends it the only signal.
setsid "$belfry" dev --data "$data" --listen "$listen" >"$log" 2>&1 &
dev=$!

echo "starting belfry dev (data in $data)"
deadline=$((SECONDS + 60))
until [[ -s $data/address && -s $data/admin-token ]] && BELFRY_URL="http://$(<"$data/address")" BELFRY_TOKEN="$(<"$data/admin-token")" \
  "$belfry" worker list -o name >"$data/.workers" 2>/dev/null && [[ -s $data/.workers ]]; do
  kill -0 "$dev" 2>/dev/null || fail "belfry dev exited before it was ready; if $listen is in use, choose another address: make run BELFRY_LISTEN=127.0.0.1:0"
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

Belfry is running: one server and one worker, three sample jobs completed.
  dashboard    $BELFRY_URL/#token=$BELFRY_TOKEN
  API          $BELFRY_URL/docs
  data, log    $data, $log

In another terminal, in this folder:

  export PATH="$(dirname "$belfry"):\$PATH" BELFRY_URL=$BELFRY_URL BELFRY_TOKEN="\$(cat '$data/admin-token')"
  belfry submit --follow -- echo 'hello from Belfry'
  belfry job list

Ctrl-C stops both. All data is kept in $data; the next \`make run\` continues with it.
TEXT

wait "$dev" && code=0 || code=$?
dev=
((code == 0)) || fail "belfry dev exited with code $code"
