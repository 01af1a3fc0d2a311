#!/usr/bin/env bash
# Prints the path of Chromium for the browser tests. As root on a system with apt-get, it installs the headless shell of
# Chromium, which needs a quarter less CPU time than the whole browser. Without any Chromium, it prints how to install one,
# and fails.
set -euo pipefail

find_one() {
  local each
  for each in "${CHROMIUM:-}" chromium-headless-shell chromium chromium-browser google-chrome; do
    [[ -n $each ]] && command -v "$each" && return 0
  done
  return 1
}

if [[ -z ${CHROMIUM:-} ]] && ! command -v chromium-headless-shell >/dev/null &&
  ((EUID == 0)) && command -v apt-get >/dev/null; then
  echo 'note: installing chromium-headless-shell for the browser tests' >&2
  apt-get install -y --no-install-recommends chromium-headless-shell fonts-noto-cjk >/dev/null 2>&1 ||
    { find_one >/dev/null || apt-get install -y --no-install-recommends chromium fonts-noto-cjk >/dev/null 2>&1 || true; }
fi
find_one && exit 0
echo 'note: Chromium not found, skipping the browser tests: install it (`apt-get install chromium`), or set CHROMIUM to its path' >&2
exit 1
