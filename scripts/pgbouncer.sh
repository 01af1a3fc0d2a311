#!/usr/bin/env bash
# Ensures that the tests find PgBouncer. Installs it if it is missing and the script runs as root on a system
# with apt-get; otherwise prints how to install it, and the tests that need it report that they are skipped.
set -euo pipefail

is_there() { [[ -x /usr/sbin/pgbouncer ]] || command -v pgbouncer >/dev/null; }

is_there && exit 0
if ((EUID == 0)) && command -v apt-get >/dev/null; then
  echo 'note: installing pgbouncer for the store tests' >&2
  apt-get install -y --no-install-recommends pgbouncer >/dev/null 2>&1 && is_there && exit 0
fi
echo 'note: PgBouncer not found, its tests will be skipped: install it (`apt-get install pgbouncer`)' >&2
