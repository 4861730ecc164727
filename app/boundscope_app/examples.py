"""The examples that come with Boundscope: one folder each, described by example.json. No Qt."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import msgspec

from boundscope.protocol import Method

FIRST_EXAMPLE = "digits-robust"


@dataclass(frozen=True)
class Example:
    """A network with its property, and the method that decides it."""

    title: str
    description: str
    network: Path
    property: Path
    method: Method = Method.CROWN


class _Description(msgspec.Struct):
    title: str
    network: str
    property: str
    description: str = ""
    method: Method = Method.CROWN


def resources_folder() -> Path | None:
    """The installed resources, or those of the source tree; None where there are none."""
    spec = importlib.util.find_spec("boundscope_resources")
    places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    places.append(Path(__file__).resolve().parents[2] / "resources")
    return next((place for place in places if (place / "examples").is_dir()), None)


def examples() -> tuple[tuple[Example, ...], tuple[str, ...]]:
    """All examples, the one to begin with first, and a sentence for each folder that cannot be read."""
    folder = resources_folder()
    found: list[Example] = []
    problems: list[str] = []
    paths = sorted((folder / "examples").glob("*/example.json")) if folder else []
    paths.sort(key=lambda path: path.parent.name != FIRST_EXAMPLE)
    for description_path in paths:
        try:
            text = msgspec.json.decode(description_path.read_bytes(), type=_Description)
        except (OSError, msgspec.DecodeError) as error:
            problems.append(f"The example in {description_path.parent} cannot be read: {error}")
            continue
        place = description_path.parent
        network, claim = (place / text.network).resolve(), (place / text.property).resolve()
        found.append(Example(text.title, text.description, network, claim, text.method))
    return tuple(found), tuple(problems)
