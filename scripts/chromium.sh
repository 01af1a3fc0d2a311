#!/usr/bin/env bash
# Prints the path of Chromium for the browser tests. Installs it if it is missing and the script runs as root
# on a system with apt-get; otherwise prints how to install it, and fails.
set -euo pipefail

find_one() {
  local each
  for each in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
    [[ -n $each ]] && command -v "$each" && return 0
  done
  return 1
}

find_one && exit 0
if ((EUID == 0)) && command -v apt-get >/dev/null; then
  echo 'note: installing chromium for the browser tests' >&2
  if apt-get install -y --no-install-recommends chromium fonts-noto-cjk >/dev/null 2>&1; then
    find_one && exit 0
  fi
fi
echo 'note: Chromium not found, skipping the browser tests: install it (`apt-get install chromium`), or set CHROMIUM to its path' >&2
exit 1
