"""Reading a property file of either version."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

from boundscope.errors import PropertyError
from boundscope.properties.normal_form import Limits
from boundscope.properties.source import TextSource
from boundscope.properties.types import Property
from boundscope.properties.vnnlib1 import parse_vnnlib1

_FIRST_COMMAND = re.compile(
    r"\s*(?:;[^\n]*\n\s*)*\(\s*(?:vnnlib-version\s*<\s*(\d+)\.(\d+)\s*>\s*\)|(declare-network))"
)


def read_property(
    path: str | Path,
    *,
    input_count: int | None = None,
    output_count: int | None = None,
    name: str = "",
    limits: Limits | None = None,
) -> Property:
    """The property of a VNN-LIB file, 1.0 or 2.0 as its first command says, plain or gzipped.

    `name` is what errors and reports call the file (default: its own name). Raises PropertyError, which names
    file and line, for text that cannot be read, for bounds that are missing or cross, and where the property
    does not have the network's `input_count` and `output_count`.
    """
    source = TextSource(Path(path), name)
    limits = limits or Limits()
    blocks = source.blocks()
    first = next(blocks, None)
    if first is None:
        raise PropertyError(f"{source.name}: the file is empty")
    whole = chain([first], blocks)
    match = _FIRST_COMMAND.match(first[1])
    if match is None or match.group(1) == "1":
        found = parse_vnnlib1(source, whole, limits)
    elif match.group(1) == "2" or match.group(3):
        from boundscope.properties.vnnlib2 import parse_vnnlib2

        found = parse_vnnlib2("".join(text for _, text in whole), source.name, limits)
    else:
        raise source.error(
            first[0] + match.start(1), f"VNN-LIB {match.group(1)} is not known; 1.0 and 2.0 are"
        )
    check_counts(found, input_count, output_count)
    return found


def check_counts(found: Property, input_count: int | None, output_count: int | None) -> None:
    """Raise PropertyError where the property is about another number of inputs or outputs."""
    for letter, kind, has, wanted in (
        ("X", "inputs", found.input_count, input_count),
        ("Y", "outputs", found.output_count, output_count),
    ):
        if wanted is not None and has != wanted:
            raise PropertyError(
                f"{found.name}: the property has {has} {kind} ({letter}_0 … {letter}_{has - 1}) but the network "
                f"has {wanted}; choose the property that belongs to this network"
            )
