"""What a job says of an error that nobody foresaw: what it was, and in which of our steps."""

from __future__ import annotations

import traceback
from pathlib import Path

import boundscope

_ROOT = Path(boundscope.__file__).parent
_LONGEST = 500


def unforeseen(error: Exception) -> str:
    """One sentence for people; the traceback is for the log."""
    first_line = str(error).strip().partition("\n")[0][:_LONGEST]
    what = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
    return f"an error in Boundscope itself ended the job: {what}{_place(error)}; please report it"


def _place(error: Exception) -> str:
    """The innermost function of ours that the error passed, as module and name."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_ROOT):
            module = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
            return f" (in {module}, {frame.name})"
    return ""
