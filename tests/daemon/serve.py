"""A daemon whose verify jobs run behaviours.py: `serve.py light|ranks|… OPTIONS`. Everything else is the real thing."""

import math
import os
import sys

from boundscope.daemon import overtime, run, spare
from boundscope.daemon.__main__ import main
from boundscope.daemon.jobspec import KINDS, Kind

ONLY_ASKS = "BOUNDSCOPE_TEST_ONLY_ASKS"  # where it is set, no signal follows when a job was asked to stop
VERIFY = {
    "light": Kind("daemon.light_job", "daemon.behaviours:run"),
    "ranks": Kind("boundscope.worker.launch", "daemon.behaviours:run"),
    "warm": Kind("boundscope.worker.launch", "daemon.behaviours:run", warm=True),
    "exec": Kind("daemon.exec_launch", "daemon.behaviours:run"),
    "impatient": Kind("daemon.light_job", "daemon.behaviours:run"),
    "broken": Kind("no_such_module", ""),
    "product": KINDS["verify"],
}

if __name__ == "__main__":
    if sys.argv[1] == "impatient":
        overtime.GRACE_S = 0.5
    if os.environ.get(ONLY_ASKS):
        run.TERMINATE_AFTER_S = run.KILL_AFTER_S = math.inf
    spare.code_stamp = lambda: (0, 0)  # who edits the code while tests run must not find them cold
    spare.ANSWER_S, spare.LEAST_AVAILABLE_BYTES = 60.0, 0  # nor a machine that does much else
    sys.exit(main(sys.argv[2:], kinds={**KINDS, "verify": VERIFY[sys.argv[1]]}))
