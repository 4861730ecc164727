#!/usr/bin/env bash
# The first thing a newcomer sees: an example network and property, opened in the window and run. Where there is no
# display (or none that answers), the same example in the terminal.
set -euo pipefail
boundscope=$1
example=digits-robust

if [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] || [ "$(uname)" = Darwin ]; then
  "$boundscope" open --example "$example" --run && exit 0
  echo "The window could not be opened (\`$boundscope doctor\` says why). The example runs here instead:"
  echo
fi
exec "$boundscope" example "$example" --report build/first-run
