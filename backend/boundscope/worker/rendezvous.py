"""Where the nodes of a job meet, of which there is one: torchrun's own way takes a third of a second for that."""

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

BACKEND = "boundscope"
HOST = "127.0.0.1"


class OneNode(RendezvousHandler):
    """Gives the agent a store on a port that the system chooses; the ranks use it too."""

    def __init__(self, run_id: str, timeout: timedelta) -> None:
        self._run_id = run_id
        self._timeout = timeout
        self._store: TCPStore | None = None

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        if self._store is None:
            self._store = TCPStore(
                HOST, 0, is_master=True, timeout=self._timeout, wait_for_workers=False, multi_tenant=True
            )
        store = PrefixStore(self._run_id, self._store)
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(HOST, self._store.port))

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


def register(timeout_s: float) -> str:
    """Make it known to torchrun in this process; the backend's name."""

    def create(parameters: RendezvousParameters) -> RendezvousHandler:
        return OneNode(parameters.run_id, timedelta(seconds=timeout_s))

    rendezvous_handler_registry.register(BACKEND, create)
    return BACKEND
