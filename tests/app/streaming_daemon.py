"""A daemon whose verify jobs stream: `python -m app.streaming_daemon --home DIR`. Everything else is the real thing."""

import sys

from boundscope.daemon.__main__ import main
from boundscope.daemon.jobspec import KINDS, Kind

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], kinds={**KINDS, "verify": Kind("app.streaming_job", "")}))
