"""`python -m boundscope` is the command `boundscope`."""

from __future__ import annotations

import sys

from boundscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
