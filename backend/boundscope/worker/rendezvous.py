"""Where the nodes of a job meet: at a c10d store on the first of them.

Which nodes there are, and which is which, is known beforehand, so nothing is negotiated (torchrun's own way takes a
third of a second for that, and numbers the nodes as they come).
"""

from __future__ import annotations

from datetime import timedelta

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

from boundscope.daemon.jobspec import NodePlace

BACKEND = "boundscope"
HOST = "127.0.0.1"


class KnownNodes(RendezvousHandler):
    """Gives the agent the store, which the ranks use too. `place` None: there is one node, on loopback, and the system
    chooses the port."""

    def __init__(self, run_id: str, timeout: timedelta, place: NodePlace | None) -> None:
        self._run_id = run_id
        self._timeout = timeout
        self._place = place
        self._store: TCPStore | None = None

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        place = self._place
        if self._store is None:
            self._store = self._open_store()
        store = PrefixStore(self._run_id, self._store)
        address = HOST if place is None else place.address
        return RendezvousInfo(
            store,
            0 if place is None else place.node,
            1 if place is None else place.nodes,
            RendezvousStoreInfo(address, self._store.port),
        )

    def _open_store(self) -> TCPStore:
        place = self._place
        if place is None:
            return TCPStore(
                HOST, 0, is_master=True, timeout=self._timeout, wait_for_workers=False, multi_tenant=True
            )
        if place.node != 0:
            return TCPStore(place.address, place.port, is_master=False, timeout=self._timeout)
        assert place.listener is not None, "the first node's agent hands its socket down"
        return TCPStore(
            place.address,
            place.port,
            is_master=True,
            timeout=self._timeout,
            wait_for_workers=False,
            multi_tenant=True,
            master_listen_fd=place.listener,
        )

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """No other node could come too late."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True


def register(timeout_s: float, place: NodePlace | None = None) -> str:
    """Make it known to torchrun in this process; the backend's name."""

    def create(parameters: RendezvousParameters) -> RendezvousHandler:
        return KnownNodes(parameters.run_id, timedelta(seconds=timeout_s), place)

    rendezvous_handler_registry.register(BACKEND, create)
    return BACKEND
