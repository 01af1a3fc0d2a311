#!/usr/bin/env bash
# Ensures that the tests find Docker, and busybox for the images that they make themselves; each test starts its own engine.
# Installs them if they are missing and the script runs as root on a system with apt-get; otherwise prints how to install
# them, and the tests that need them report that they are skipped.
set -euo pipefail

is_there() { command -v dockerd >/dev/null && command -v docker >/dev/null && command -v busybox >/dev/null; }

is_there && exit 0
if ((EUID == 0)) && command -v apt-get >/dev/null; then
  echo 'note: installing Docker for the container tests' >&2
  apt-get install -y --no-install-recommends docker.io busybox-static iptables >/dev/null 2>&1 && is_there && exit 0
fi
echo 'note: Docker not found, the container tests will be skipped: install it (`apt-get install docker.io busybox-static`)' >&2
