#!/usr/bin/env bash
# Makes sure that the tests find PostgreSQL's own programs; they start throwaway servers of it. Where
# there are none and they can be had (apt-get, as root), they are installed; otherwise it says how.
set -euo pipefail
shopt -s nullglob

is_there() {
  local found=(/usr/lib/postgresql/*/bin/initdb)
  ((${#found[@]} > 0)) || command -v initdb >/dev/null
}

is_there && exit 0
if ((EUID == 0)) && command -v apt-get >/dev/null; then
  echo 'note: installing postgresql for the tests of the store' >&2
  apt-get install -y --no-install-recommends postgresql >/dev/null 2>&1 && is_there && exit 0
fi
echo 'note: there is no PostgreSQL, so the tests of its store will fail: install it (`apt-get install postgresql`), or put `initdb` and `postgres` on PATH' >&2
