"""The shipped examples as the window shows them: the one to begin with first, and a problem as a sentence."""

from __future__ import annotations

from pathlib import Path

from boundscope import examples as shipped
from boundscope.errors import BoundscopeError
from boundscope.examples import Example

__all__ = ["Example", "examples", "resources_folder"]


def resources_folder() -> Path | None:
    """The installed resources; None where there are none."""
    try:
        return shipped.resources_folder()
    except BoundscopeError:
        return None


def examples() -> tuple[tuple[Example, ...], tuple[str, ...]]:
    """All examples, and what kept them from being read."""
    try:
        found = shipped.examples()
    except BoundscopeError as error:
        return (), (str(error),)
    return tuple(sorted(found, key=lambda example: example.id != shipped.FIRST_EXAMPLE)), ()
