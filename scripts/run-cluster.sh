#!/usr/bin/env bash
# Implements `make run-cluster` after the build: runs three servers and two workers on this machine, until Ctrl-C.
# The store is `postgres`: one database for all servers, which is started unless $BELFRY_SERVER__STORE names another
# one; or `raft`: the servers form a Raft cluster.
#
# usage: scripts/run-cluster.sh BELFRY DATA_DIR FIRST_PORT [postgres|raft]
set -euo pipefail
shopt -s nullglob

belfry=$(realpath "$1")
data=$2
port=$3
store=${4:-postgres}
[[ $store == postgres || $store == raft ]] || { echo "error: the store \`$store\` is unknown: expected postgres or raft" >&2; exit 2; }
declare -A processes
database=

as_owner() { if ((EUID == 0)); then setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; else "$@"; fi; }

mkdir -p "$data"
chmod 755 "$data"
# As root, the workers' tasks and the database run as `nobody`: both must be able to access the folder.
if ! as_owner test -x "$data"; then
  data=/var/tmp/belfry-run-cluster
  mkdir -p "$data"
fi
data=$(realpath "$data")
[[ -O $data ]] || data=$(mktemp -d)
chmod 755 "$data"

stop() {
  trap - EXIT INT TERM
  local name
  # Workers first, so that they return their executions; a worker's supervisor ends with its tasks.
  for name in worker-1 worker-2 server-a server-b server-c; do
    if [[ -n ${processes[$name]:-} ]] && kill -0 "${processes[$name]}" 2>/dev/null; then
      kill -TERM "${processes[$name]}" 2>/dev/null || true
      wait "${processes[$name]}" 2>/dev/null || true
    fi
  done
  for name in worker-1 worker-2; do
    pkill -TERM -f -- "^$belfry supervisor .*$data/$name( |\$)" 2>/dev/null || true
  done
  [[ -z $database ]] || as_owner "$database/pg_ctl" -D "$data/database" -m fast stop >/dev/null 2>&1 || true
}

fail() {
  echo "error: $1" >&2
  [[ -z ${2:-} || ! -s $2 ]] || { echo "last lines of the log ($2):" >&2; tail -n 20 "$2" | sed 's/^/  /' >&2; }
  exit 1
}

trap stop EXIT
trap 'echo; echo "stopping"; exit 0' INT TERM

start_database() {
  "$(dirname "${BASH_SOURCE[0]}")/postgresql.sh"
  local found=(/usr/lib/postgresql/*/bin)
  if ((${#found[@]} > 0)); then database=${found[-1]}; else database=$(dirname "$(command -v initdb)"); fi
  local at=$((port + 99)) log=$data/database.log
  if [[ ! -d $data/database ]]; then
    mkdir "$data/database"
    ((EUID != 0)) || chown nobody:nogroup "$data/database"
    as_owner "$database/initdb" -D "$data/database" -U belfry --auth=trust -E UTF8 --no-locale >/dev/null ||
      fail "cannot create the database in $data/database"
  fi
  touch "$log"
  ((EUID != 0)) || chown nobody:nogroup "$log"
  as_owner "$database/pg_ctl" -D "$data/database" -l "$log" -w \
    -o "-c listen_addresses=127.0.0.1 -c port=$at -c unix_socket_directories=''" start >/dev/null ||
    fail "the database did not start; if port $at is in use, choose other ports: make run-cluster BELFRY_PORT=17070" "$log"
  export BELFRY_SERVER__STORE="postgres://belfry@127.0.0.1:$at/postgres"
}

# start NAME COMMAND…: starts a process in its own session, so that it receives Ctrl-C only through `stop`.
start() {
  local name=$1
  shift
  setsid "$@" >>"$data/$name.log" 2>&1 &
  processes[$name]=$!
}

start_server() {
  local flags=()
  if [[ $store == raft ]]; then
    # Server a creates the cluster at its first start; the others join it. Later both flags would be wrong or unused.
    if [[ $1 != a ]]; then
      flags=(--join "127.0.0.1:$port" --join-token-file "$data/server-a/join-token")
    elif [[ ! -e $data/server-a/raft/node.json ]]; then
      flags=(--bootstrap)
    fi
  fi
  start "server-$1" "$belfry" server --name "$1" --data "$data/server-$1" --listen "127.0.0.1:$2" "${flags[@]}"
}

# is_up NAME PORT: for the first server of a Raft cluster, also whether it has written the tokens.
is_up() {
  (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null || return 1
  [[ $store != raft || $1 != a || -s $data/server-a/join-token && -s $data/server-a/admin-token ]]
}

if [[ $store == raft ]]; then
  export BELFRY_SERVER__STORE=raft
elif [[ -z ${BELFRY_SERVER__STORE:-} ]]; then
  start_database
fi

if [[ $store == raft ]]; then kind='the Raft store'; else kind='one database'; fi
echo "starting three servers ($kind) and two workers (data in $data)"
number=0
for name in a b c; do
  start_server "$name" $((port + number))
  number=$((number + 1))
  # The first server creates the tables and the tokens.
  deadline=$((SECONDS + 60))
  until is_up "$name" $((port + number - 1)); do
    kill -0 "${processes[server-$name]}" 2>/dev/null ||
      fail "server $name exited before it was ready; if port $((port + number - 1)) is in use, choose other ports: make run-cluster BELFRY_PORT=17070" "$data/server-$name.log"
    ((SECONDS < deadline)) || fail "server $name was not ready within 60 seconds" "$data/server-$name.log"
    sleep 0.1
  done
done
token_of() { cat "$data"/server-?/"$1" 2>/dev/null | head -n 1; }
# The tokens are stored at the first start on a database; a database that was used before has other tokens.
[[ -n $(token_of admin-token) ]] || fail "the database already has tokens, but $data does not contain them: use an empty database, or the data folder of its first start"
workers="$(ls "$data"/server-?/worker-token | head -n 1)"
for number in 1 2; do
  start "worker-$number" "$belfry" worker --name "worker-$number" --dir "$data/worker-$number" \
    --server "http://127.0.0.1:$port" --server "http://127.0.0.1:$((port + 1))" --token-file "$workers"
done

export BELFRY_URL="http://127.0.0.1:$port" BELFRY_TOKEN
BELFRY_TOKEN=$(token_of admin-token)
deadline=$((SECONDS + 60))
until [[ $("$belfry" worker list -o name 2>/dev/null | wc -l) -ge 2 ]]; do
  ((SECONDS < deadline)) || fail "the workers did not connect within 60 seconds" "$data/worker-1.log"
  sleep 0.2
done
# A server opens its port shortly before it joins the cluster.
until [[ $("$belfry" server list -o name 2>/dev/null | wc -l) -ge 3 ]]; do
  ((SECONDS < deadline)) || fail "the servers did not join the cluster within 60 seconds" "$data/server-c.log"
  sleep 0.2
done
echo
"$belfry" server list
echo
"$belfry" submit --follow -- echo 'hello from the cluster' || fail "the sample job did not succeed" "$data/server-a.log"
cat <<TEXT

Belfry is running: three servers ($kind), two workers.
  dashboards   http://127.0.0.1:$port/#token=$BELFRY_TOKEN  (and ports $((port + 1)), $((port + 2)))
  data, logs   $data

In another terminal, in this folder:

  export PATH="$(dirname "$belfry"):\$PATH" BELFRY_CONTEXT=cluster
  belfry context set cluster --url http://127.0.0.1:$((port + 1)) --token-file '$(ls "$data"/server-?/admin-token | head -n 1)'
  belfry server list                             # show which server is the leader
  belfry server drain a                          # hand leadership over gracefully
  kill -9 ${processes[server-a]}                                 # or crash server a
  belfry submit --follow -- echo 'still here'    # another server has taken over

Ctrl-C stops the cluster. All data is kept in $data; remove that folder to start from scratch.
TEXT

# Restarts a killed server, as a service manager would.
while sleep 1; do
  number=0
  for name in a b c; do
    if ! kill -0 "${processes[server-$name]}" 2>/dev/null; then
      echo "server $name exited; restarting it"
      start_server "$name" $((port + number))
    fi
    number=$((number + 1))
  done
done
