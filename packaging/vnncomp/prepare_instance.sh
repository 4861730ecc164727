#!/usr/bin/env bash
# VNN-COMP: prepare_instance.sh v1 CATEGORY ONNX VNNLIB
# Ends what an earlier run may have left, sees that the files are there, and reads the program from disk once, so that
# a cold disk is not measured with the instance. It looks at no instance: nothing is analysed or kept for the run.
# Status 0 where the instance can be run.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=packaging/vnncomp/common.sh
. "$here/common.sh"
expect_version "${1:-}"
if [ $# -lt 4 ]; then
  complain "expected v1 CATEGORY ONNX VNNLIB"
  exit 1
fi
end_leftovers
find_file "$3" >/dev/null
find_file "$4" >/dev/null
"$venv/bin/python" -P -c 'import boundscope.worker.verify'
