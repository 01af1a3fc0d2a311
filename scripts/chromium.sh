#!/usr/bin/env bash
# Prints the path of a Chromium for the browser tests. Where there is none and one can be had (apt-get,
# as root), it is installed; otherwise it says how, and fails.
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
echo 'note: there is no Chromium, so the browser tests are left out: install one (`apt-get install chromium`), or name one in CHROMIUM' >&2
exit 1
