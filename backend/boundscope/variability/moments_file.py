"""The statistics of a run in one file, from which it is resumed and its results are read.

The file is an npz: a `header` in JSON (format, what run it is of, sample numbers, names) and arrays named
`layer.<position>.<array>` and `decision.<position>.<array>`, so that any layer name will do. It is written under
another name, synced to disk and then renamed: whoever reads sees the old file or the new one, whole.
"""

from __future__ import annotations

import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from boundscope.errors import VariabilityError
from boundscope.variability.decisions import Decisions
from boundscope.variability.moments import Floats, Moments

FORMAT = "boundscope variability moments"
VERSION = 1


class RunMoments:
    """Moments of each layer and decisions of each output, over the samples of one run.

    `identity` says what the run is (network, inputs, mode, seed, precision), as text of the caller's: files and
    parts of another run are refused. `layers` and `decisions` are by name, and start without samples.
    """

    def __init__(
        self,
        identity: str,
        layers: Mapping[str, Moments] | None = None,
        decisions: Mapping[str, Decisions] | None = None,
    ) -> None:
        self.identity = identity
        self.layers = dict(layers or {})
        self.decisions = dict(decisions or {})
        self._numbers: set[int] = set()

    @classmethod
    def start(
        cls, identity: str, baseline: Mapping[str, Floats], decide: Mapping[str, int] | None = None
    ) -> RunMoments:
        """A run without samples. `baseline` holds each layer's unperturbed tensor; `decide` the class axis of those
        layers whose argmax is a decision. Raises VariabilityError for tensors that are not floating-point."""
        unknown = sorted(set(decide or {}) - set(baseline))
        if unknown:
            raise VariabilityError(
                f"decisions are asked of {', '.join(unknown)}, which the baseline does not have"
            )
        return cls(
            identity,
            {name: Moments(tensor, name) for name, tensor in baseline.items()},
            {name: Decisions(baseline[name], axis, name) for name, axis in (decide or {}).items()},
        )

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the samples held, ascending."""
        return tuple(sorted(self._numbers))

    def missing(self, samples: int) -> tuple[int, ...]:
        """Which of the numbers 0 … samples − 1 a resumed run still has to take."""
        return tuple(number for number in range(samples) if number not in self._numbers)

    def add(self, number: int, tensors: Mapping[str, Floats]) -> None:
        """Take one sample: all layers, or none if one of them does not fit.

        A layer that the sample did not run through (a branch not taken) may be missing; its count of samples is then
        its own. Raises VariabilityError for a layer that the baseline does not have, a tensor of another shape or
        type, and a number that is held already.
        """
        if number in self._numbers:
            raise VariabilityError(f"sample {number} is there already; each is taken once")
        for name, tensor in tensors.items():
            if name not in self.layers:
                raise VariabilityError(
                    f"sample {number} has a layer {name!r} that the baseline does not have; "
                    "the network's structure must not depend on rounding"
                )
            self.layers[name].check(number, tensor)
            if name in self.decisions:
                self.decisions[name].check(number, tensor)
        for name, tensor in tensors.items():
            self.layers[name].update(number, tensor)
            if name in self.decisions:
                self.decisions[name].update(number, tensor)
        self._numbers.add(number)

    def merge(self, other: RunMoments) -> None:
        """Take all samples of `other`; the same bits in any grouping.

        Raises VariabilityError where the runs, their layers or references differ, or a sample is in both.
        """
        _refuse_other_run(self.identity, other.identity, "the other part")
        both = sorted(self._numbers & other._numbers)
        if both:
            raise VariabilityError(
                f"samples {', '.join(map(str, both))} are in both parts; each is taken once"
            )
        for mine, theirs in ((self.layers, other.layers), (self.decisions, other.decisions)):
            if set(mine) != set(theirs):
                differing = ", ".join(sorted(set(mine) ^ set(theirs)))
                raise VariabilityError(
                    f"only one of the two parts has {differing}; all ranks run one network"
                )
        # All are checked before any is changed.
        for name, layer in self.layers.items():
            layer.check_merge(other.layers[name])
        for name, decision in self.decisions.items():
            decision.check_merge(other.decisions[name])
        for name, layer in self.layers.items():
            layer.merge(other.layers[name])
        for name, decision in self.decisions.items():
            decision.merge(other.decisions[name])
        self._numbers |= other._numbers

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all. Raises VariabilityError where it cannot be written."""
        arrays: dict[str, Any] = {}
        states = {
            "layer": [layer.state() for layer in self.layers.values()],
            "decision": [decision.state() for decision in self.decisions.values()],
        }
        for kind, held in states.items():
            for position, state in enumerate(held):
                arrays.update({f"{kind}.{position}.{key}": array for key, array in state.items()})
        header = {
            "format": FORMAT,
            "version": VERSION,
            "identity": self.identity,
            "numbers": self.numbers,
            "layers": list(self.layers),
            "decisions": list(self.decisions),
        }
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        with replaced(path) as stream:
            np.savez(stream, **arrays)

    @classmethod
    def load(cls, path: Path, identity: str | None = None) -> RunMoments:
        """Read a file; with `identity`, only if it is of that run.

        Raises VariabilityError for a file that is damaged, incomplete, of another kind, version or run.
        """
        held: dict[str, dict[str, NDArray[Any]]] = {}
        try:
            with np.load(path, allow_pickle=False) as archive:
                header = json.loads(archive["header"].tobytes())
                if not isinstance(header, dict) or header.get("format") != FORMAT:
                    raise VariabilityError(f"{path} holds no moments of Boundscope's")
                if header["version"] != VERSION:
                    raise VariabilityError(
                        f"{path} has version {header['version']}, this Boundscope reads version {VERSION}; "
                        "use the Boundscope that wrote it, or start the run anew under another name"
                    )
                for member in archive.files:
                    kind, _, rest = member.partition(".")
                    position, _, key = rest.partition(".")
                    held.setdefault(f"{kind}.{position}", {})[key] = archive[member]
            run = cls(
                header["identity"],
                {
                    name: Moments.from_state(held.get(f"layer.{position}", {}), name)
                    for position, name in enumerate(header["layers"])
                },
                {
                    name: Decisions.from_state(held.get(f"decision.{position}", {}), name)
                    for position, name in enumerate(header["decisions"])
                },
            )
            run._numbers = set(header["numbers"])
        except FileNotFoundError as error:
            raise VariabilityError(f"{path}: there is no such file") from error
        except OSError as error:
            raise VariabilityError(f"{path} cannot be read: {error.strerror or error}") from error
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
        ) as error:
            raise VariabilityError(
                f"{path} is damaged or not a file of moments ({error}); "
                "delete it to start the run anew, or resume from a copy"
            ) from error
        if identity is not None:
            _refuse_other_run(identity, run.identity, str(path))
        return run


def merged(runs: Iterable[RunMoments]) -> RunMoments:
    """The parts of a run that ranks took, as one; the first part is changed and returned.

    Raises VariabilityError as `RunMoments.merge` does, and where there is no part.
    """
    parts = iter(runs)
    try:
        total = next(parts)
    except StopIteration:
        raise VariabilityError("there are no parts to merge") from None
    for part in parts:
        total.merge(part)
    return total


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose content becomes the file `path` when all went well, and nothing otherwise.

    Raises VariabilityError where the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        try:
            with temporary.open("wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise VariabilityError(f"{path} cannot be written: {error.strerror or error}") from error


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power failure, where folders can be synced at all."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_other_run(expected: str, found: str, where: str) -> None:
    if expected != found:
        raise VariabilityError(f"{where} is of another run: expected {expected!r}, found {found!r}")
