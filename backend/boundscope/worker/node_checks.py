"""Whether machines can share a job's ranks: each is asked over ssh as a job would ask it, and each tries the way to the
first one. Nothing is left running. Imports no torch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from boundscope.errors import RankFailedError
from boundscope.worker import nodes
from boundscope.worker.nodes import Node


@dataclass(frozen=True)
class NodeCheck:
    """One node: what was found, and the remedy where it is not ready."""

    host: str
    ready: bool
    found: str
    remedy: str = ""


def check_nodes(hosts: Sequence[str]) -> list[NodeCheck]:
    """One check a host, in their order; takes as long as the slowest ssh, at most about 30 s."""
    return asyncio.run(_check(hosts))


async def _check(hosts: Sequence[str]) -> list[NodeCheck]:
    asked = await asyncio.gather(*map(_asked, hosts))
    present = [one for one in asked if isinstance(one, Node)]
    try:
        ways = await _ways(present) if len(present) > 1 else {}
        return [one if isinstance(one, NodeCheck) else ways.get(one.host) or _ready(one, "") for one in asked]
    finally:
        await asyncio.gather(*(node.close() for node in present), return_exceptions=True)


async def _asked(host: str) -> Node | NodeCheck:
    """The node, its agent there and of our versions; or what is wrong with it."""
    try:
        node = await nodes.greet(host)
    except RankFailedError as error:
        return _failed(host, error)
    try:
        await nodes.introduce(node)
    except RankFailedError as error:
        await node.close()
        return _failed(host, error)
    return node


async def _ways(present: Sequence[Node]) -> dict[str, NodeCheck]:
    """What came of the way to the first of these nodes, by host."""
    first, *others = present
    try:
        listening, routes = await nodes.find_ways(present)
    except RankFailedError as error:
        host = next((node.host for node in present if f"node {node.host}" in str(error)), first.host)
        return {host: _failed(host, error)}
    checks = {first.host: _ready(first, "the others meet here")}
    for node, found in zip(others, routes[1:], strict=True):
        if found:
            way = next(address for address in listening.addresses if address in found)
            checks[node.host] = _ready(node, f"reaches {first.host} at {way}")
        else:
            tried = ", ".join(listening.addresses) or "none but loopback"
            checks[node.host] = NodeCheck(
                node.host,
                False,
                f"cannot reach {first.host} (its addresses: {tried}; port {listening.port})",
                "let the nodes connect to each other on ports above 1023, or name another node first",
            )
    return checks


def _ready(node: Node, way: str) -> NodeCheck:
    assert node.here is not None
    here = node.here
    parts = [f"Boundscope {here.version}, torch {here.torch}", f"{here.cores} cores"]
    parts += [f"answered in {node.answer_s:.1f} s", *([way] if way else [])]
    return NodeCheck(node.host, True, ", ".join(parts))


def _failed(host: str, error: RankFailedError) -> NodeCheck:
    """The sentence of a job that could not start there, in its two halves."""
    text = str(error).removeprefix(f"node {host}").removeprefix(":").strip()
    found, _, remedy = text.partition(": ")
    return NodeCheck(host, False, found, remedy or f"try `ssh -o BatchMode=yes {host} true`")
