"""Readers of what is typed behind an option; each raises argparse.ArgumentTypeError for what it cannot read."""

from __future__ import annotations

import argparse
import enum
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from boundscope import capabilities
from boundscope.cli.output import read_size
from boundscope.errors import DaemonError, UsageError
from boundscope.protocol import Sharding

if TYPE_CHECKING:
    from boundscope.client import RemoteHost

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def decimal(text: str) -> str:
    """A decimal number, kept as written."""
    if not _DECIMAL.fullmatch(text):
        hint = "; write the quotient out as a decimal number" if "/" in text else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not a decimal number{hint}")
    return text


def decimals(text: str) -> tuple[str, ...]:
    return tuple(decimal(part.strip()) for part in text.split(","))


def real(text: str) -> float:
    value = float(decimal(text))
    if math.isinf(value):
        raise argparse.ArgumentTypeError(f"{text} is too large")
    return value


def hosts(text: str) -> tuple[str, ...]:
    """Host names with commas between them."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of hosts, as host1,host2")
    return found


def whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def member(kind: type[enum.StrEnum]) -> Callable[[str], enum.StrEnum]:
    """A reader of one of the enumeration's values."""

    def read(text: str) -> enum.StrEnum:
        if text not in [value.value for value in kind]:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(kind)}")
        return kind(text)

    return read


class Budget(NamedTuple):
    """A memory budget in bytes, or as a share of the device's memory; neither where none was asked for."""

    bytes: int | None = None
    share: float | None = None


def budget(text: str) -> Budget:
    """`text` as a size (2GiB) or a percentage (25%)."""
    if not text.rstrip().endswith("%"):
        return Budget(bytes=size(text))
    percent = real(text.rstrip().removesuffix("%"))
    if not 0 < percent <= 100:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not above 0 % and at most 100 % of the device's memory"
        )
    return Budget(share=percent / 100)


def size(text: str) -> int:
    try:
        return read_size(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def precision(text: str) -> int:
    """Significand bits, by number or by name."""
    if text in capabilities.PRECISION_BITS:
        return capabilities.PRECISION_BITS[text]
    if not text.isdecimal():
        names = ", ".join(capabilities.PRECISION_BITS)
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number of significand bits nor one of {names}"
        )
    return int(text)


def host(text: str) -> RemoteHost:
    from boundscope.client import read_host

    try:
        return read_host(text)
    except DaemonError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def counts(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(whole(part.strip()) for part in text.split(",")))


def shardings(text: str) -> tuple[enum.StrEnum, ...]:
    read = member(Sharding)
    return tuple(dict.fromkeys(read(part.strip()) for part in text.split(",")))
