"""`python -m boundscope_app` opens the workbench."""

from __future__ import annotations

import sys

from boundscope_app.main import main

if __name__ == "__main__":
    sys.exit(main())
