#!/usr/bin/env bash
# VNN-COMP: run_instance.sh v1 CATEGORY ONNX VNNLIB RESULTS TIMEOUT
# RESULTS gets sat (with the counterexample), unsat, unknown, timeout or error. The script ends before TIMEOUT seconds
# have passed. $BOUNDSCOPE_OPTIONS stands for the options of `boundscope verify`, the same for every instance.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=packaging/vnncomp/common.sh
. "$here/common.sh"
expect_version "${1:-}"
if [ $# -lt 6 ]; then
  complain "expected v1 CATEGORY ONNX VNNLIB RESULTS TIMEOUT"
  exit 1
fi
results=$5 timeout=$6
SECONDS=0
if ! [[ $timeout =~ ^[0-9]+(\.[0-9]*)?$ ]]; then
  complain "TIMEOUT must be seconds, not '$timeout'"
  exit 1
fi
printf 'error\n' >"$results"
onnx=$(find_file "$3")
vnnlib=$(find_file "$4")
read -r -a options <<<"${BOUNDSCOPE_OPTIONS:---method complete}"

# Of the time, Boundscope gets all but what it takes to start and to say how it ended; the last line of defence, should
# it not keep its limit, comes in between.
read -r limit guard grace < <(awk -v t="$timeout" 'BEGIN {
  reserve = t * 0.4; if (reserve > 10) reserve = 10
  printf "%.3f %.3f %.3f\n", t - reserve, t - reserve / 2, reserve / 4 }')
(umask 077 && mkdir -p -- "$state_folder")

# A session of its own makes a group that can be ended as a whole.
setsid timeout --signal=TERM --kill-after="$grace" "$guard" \
  "$boundscope" verify "$onnx" "$vnnlib" "${options[@]}" --timeout "$limit" --vnncomp "$results" &
child=$!
printf '%s\n' "$child" >"$state"
trap 'kill -KILL -- "-$child" 2>/dev/null || true' TERM INT
status=0
wait "$child" || status=$?
kill -KILL -- "-$child" 2>/dev/null || true
rm -f -- "$state"
case $status in
  0 | 1 | 10 | 20 | 21 | 22) ;; # told in the file
  *) # ended from outside: for want of time, or by what must not be taken for it
    word=error
    awk -v spent="$SECONDS" -v limit="$limit" 'BEGIN { exit !(spent + 1 >= limit) }' && word=timeout
    printf '%s\n' "$word" >"$results"
    ;;
esac
