"""The files that a command line names, checked before anything is started."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

from msgspec.structs import replace

from boundscope.errors import NetworkError, PropertyError, UsageError, VariabilityError
from boundscope.protocol import FileRef

_ROLES = {"NET": NetworkError, "PROPERTY": PropertyError, "CENTER": PropertyError, "INPUTS": VariabilityError}
_EXPECTED = {
    "NET": "an ONNX file (.onnx or .onnx.gz)",
    "PROPERTY": "a VNN-LIB file (.vnnlib or .vnnlib.gz)",
    "CENTER": "the centre of the ball (.npy or .png)",
    "INPUTS": "points (.npy or .npz), an image (.png) or a folder of images",
}


def describe(path: Path, role: str) -> FileRef:
    """Name, hash and size of a file that exists and can be read; `role` is one of `_ROLES`."""
    expected = _EXPECTED[role]
    if path.is_dir():
        raise UsageError(f"{path} is a folder; {role} must be {expected}")
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except FileNotFoundError:
        raise _ROLES[role](f"{path} does not exist; {role} must be {expected}") from None
    except OSError as error:
        raise _ROLES[role](f"{path} cannot be read ({error.strerror}); {role} must be {expected}") from None
    if size == 0:
        raise _ROLES[role](f"{path} is empty; {role} must be {expected}")
    return FileRef(name=path.name, sha256=digest, size_bytes=size)


def describe_network(path: Path) -> FileRef:
    """A network with the files that hold its weights outside it, for both are its content."""
    from boundscope.client.transfer import external_data

    ref = describe(path, "NET")
    outside = tuple(replace(describe(path.parent / name, "NET"), name=name) for name in external_data(path))
    return replace(ref, companions=outside)


def looks_like(path: Path) -> str | None:
    """ "NET" or "PROPERTY" by the file's name, else by its first bytes; None where neither tells."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".onnx", ".pb")):
        return "NET"
    if name.endswith((".vnnlib", ".smt2", ".vnn")):
        return "PROPERTY"
    try:
        with path.open("rb") as file:
            start = file.read(2)
        with gzip.open(path, "rb") if start == b"\x1f\x8b" else path.open("rb") as content:
            head = content.read(256).lstrip()
    except (OSError, EOFError, zlib.error):
        return None
    if head.startswith((b"(", b";")):
        return "PROPERTY"
    if head.startswith(b"\x08"):  # field 1 of ONNX's ModelProto: ir_version
        return "NET"
    return None


def check_order(network: Path, property: Path | None) -> None:
    """UsageError where NET and PROPERTY were plainly given the wrong way round, or one of them twice."""
    first = looks_like(network)
    if property is None:
        if first == "PROPERTY":
            raise UsageError(f"{network} is a property; NET must be {_EXPECTED['NET']}")
        return
    second = looks_like(property)
    if first == "PROPERTY" and second == "NET":
        raise UsageError(
            f"the files are the wrong way round: {network} is the property and {property} the network; "
            f"write: boundscope verify {property} {network}"
        )
    if first == "PROPERTY":
        raise UsageError(f"{network} is a property; NET must be {_EXPECTED['NET']}")
    if second == "NET":
        raise UsageError(f"{property} is a network; PROPERTY must be {_EXPECTED['PROPERTY']}")
