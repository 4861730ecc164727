#!/usr/bin/env bash
# The first thing a newcomer sees: an example network and property, opened in the window and run. Where no window can
# be shown, the same example in the terminal.
set -euo pipefail
boundscope=$1
example=digits-robust
no_window=1 # the exit status of the workbench where it could not show itself

if [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] || [ "$(uname)" = Darwin ]; then
  status=0
  "$boundscope" open --example "$example" --run || status=$?
  [ "$status" -eq "$no_window" ] || exit "$status"
  printf 'The window cannot be shown (%s doctor says more). The example runs here instead.\n\n' "$boundscope"
fi
exec "$boundscope" example "$example" --report build/first-run
