#!/usr/bin/env bash
# VNN-COMP: install_tool.sh v1
# Puts Boundscope with all that it needs into .venv at the repository's root; safe to run again.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=packaging/vnncomp/common.sh
. "$here/common.sh"
expect_version "${1:-}"

if ! command -v python3 >/dev/null && [ "$(id -u)" -eq 0 ]; then
  DEBIAN_FRONTEND=noninteractive apt-get -q update
  DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends python3 python3-venv python3-dev
fi
python3 "$root/scripts/set_up.py" --quiet --venv "$venv"
"$boundscope" --version
