#!/usr/bin/env bash
# Makes sure that the tests find PgBouncer. Where there is none and it can be had (apt-get, as root), it is
# installed; otherwise it says how, and the tests through it say that they were left out.
set -euo pipefail

is_there() { [[ -x /usr/sbin/pgbouncer ]] || command -v pgbouncer >/dev/null; }

is_there && exit 0
if ((EUID == 0)) && command -v apt-get >/dev/null; then
  echo 'note: installing pgbouncer for the tests of the store' >&2
  apt-get install -y --no-install-recommends pgbouncer >/dev/null 2>&1 && is_there && exit 0
fi
echo 'note: there is no PgBouncer, so what goes through it is not tested: install it (`apt-get install pgbouncer`)' >&2
