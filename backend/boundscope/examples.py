"""The examples that come with Boundscope. Imports neither torch nor Qt."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import msgspec

from boundscope.errors import BoundscopeError, UsageError
from boundscope.protocol import Method, Verdict

FIRST_EXAMPLE = "digits-robust"


class _Description(msgspec.Struct):
    """example.json, as resources/README.md describes it; paths are relative to its folder."""

    id: str
    title: str
    description: str
    network: str
    property: str
    method: Method
    expected: Verdict


@dataclass(frozen=True)
class Example:
    """One example: its files, and the verdict that `method` gives."""

    id: str
    title: str
    description: str
    network: Path
    property: Path
    method: Method
    expected: Verdict


def resources_folder() -> Path:
    """The installed resources, or those of the source tree; BoundscopeError where there are none."""
    spec = find_spec("boundscope_resources")
    places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    places.append(Path(__file__).resolve().parents[2] / "resources")
    for place in places:
        if (place / "examples").is_dir():
            return place
    raise BoundscopeError("the examples are not installed; install Boundscope again")


def examples() -> tuple[Example, ...]:
    """All examples, by id. BoundscopeError names a description that cannot be read."""
    found = []
    for path in sorted((resources_folder() / "examples").glob("*/example.json")):
        try:
            told = msgspec.json.decode(path.read_bytes(), type=_Description)
        except (OSError, msgspec.DecodeError) as error:
            raise BoundscopeError(f"{path} cannot be read: {error}") from None
        folder = path.parent
        found.append(
            Example(
                id=told.id,
                title=told.title,
                description=told.description,
                network=(folder / told.network).resolve(),
                property=folder / told.property,
                method=told.method,
                expected=told.expected,
            )
        )
    return tuple(found)


def example(name: str) -> Example:
    """The example of this id; UsageError, with the ids there are, for another."""
    known = {found.id: found for found in examples()}
    if name not in known:
        raise UsageError(f"there is no example {name!r}; there are: {', '.join(known)}")
    return known[name]
