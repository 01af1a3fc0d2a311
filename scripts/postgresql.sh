#!/usr/bin/env bash
# Ensures that the tests find the PostgreSQL binaries, with which they start temporary servers. Installs them
# if they are missing and the script runs as root on a system with apt-get; otherwise prints how to install them.
set -euo pipefail
shopt -s nullglob

is_there() {
  local found=(/usr/lib/postgresql/*/bin/initdb)
  ((${#found[@]} > 0)) || command -v initdb >/dev/null
}

is_there && exit 0
if ((EUID == 0)) && command -v apt-get >/dev/null; then
  echo 'note: installing postgresql for the store tests' >&2
  apt-get install -y --no-install-recommends postgresql >/dev/null 2>&1 && is_there && exit 0
fi
echo 'note: PostgreSQL not found, the store tests will fail: install it (`apt-get install postgresql`), or add `initdb` and `postgres` to PATH' >&2
