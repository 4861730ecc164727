"""What ranks tell each other in the middle of a pass: all-gathers of one size, so that a rank that fails can still
answer, whatever the others were about to ask."""

from __future__ import annotations

import time
import warnings
from collections import deque
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from boundscope.errors import BoundscopeError

HEADER_BYTES = 64  # its first byte tells that the sender has failed; the rest keeps what follows aligned


class PeerStoppedError(BoundscopeError):
    """Another rank has failed; what it brings to `RankGroup.agree` is the reason."""


@dataclass
class Frame:
    """One all-gather; `received` is uint8 [P, HEADER_BYTES + room]. `ended_s` gets the time of its end."""

    work: dist.Work | None
    sent: Tensor | None
    received: Tensor
    posted_s: float
    ended_s: list[float]


@dataclass
class Traffic:
    """Seconds that gathers were under way, and those of them that the rank waited; bytes received. Seconds and bytes of
    reading in memory that ranks of one machine share."""

    under_way_s: float = 0.0
    waited_s: float = 0.0
    received_bytes: int = 0
    read_s: float = 0.0
    read_bytes: int = 0

    @property
    def hidden_share(self) -> float:
        """The part of the time under way in which the rank computed."""
        return 1.0 - self.waited_s / self.under_way_s if self.under_way_s else 0.0


class Frames:
    """All-gathers of equal size in a process group of their own. Every rank posts the same frames in the same order.

    A rank that fails posts one more frame, which says so; the others meet it where they wait next, and raise
    PeerStoppedError. `settle` then brings all ranks to the same number of frames, so that none is left for a later one
    to meet.
    """

    def __init__(self, size: int, room: int) -> None:
        """All ranks call together; the default process group must be initialised. `room`: bytes of each rank's part of
        a frame."""
        self._size = size
        self._group = dist.new_group()
        # One device, and so one backend, for all of them: frames of two would not meet in order.
        cuda = torch.cuda.is_available() and dist.is_nccl_available() and "nccl" in dist.get_backend_config()
        self._device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
        self.resize(room)
        self._posted = 0
        self._open: deque[Frame] = deque()
        self.traffic = Traffic()

    def resize(self, room: int) -> None:
        """Frames of another size from now on. All ranks call at the same place, where none is under way."""
        self._room = -(-room // HEADER_BYTES) * HEADER_BYTES

    def post(self, payload: Tensor, *, failed: bool = False) -> list[Frame]:
        """Start to gather every rank's payload, a tensor of as many bytes on each."""
        if payload.numel() * payload.element_size() <= self._room:
            return [self._post(payload, failed)]
        content = payload.reshape(-1).view(torch.uint8)
        return [
            self._post(content[start : start + self._room], failed)
            for start in range(0, len(content), self._room)
        ]

    def _post(self, part: Tensor, failed: bool) -> Frame:
        sent = torch.empty(HEADER_BYTES + self._room, dtype=torch.uint8, device=self._device)
        sent[0] = failed
        size = part.numel() * part.element_size()
        sent[HEADER_BYTES : HEADER_BYTES + size].view(part.dtype).view(part.shape).copy_(part)
        received = torch.empty(self._size, len(sent), dtype=torch.uint8, device=self._device)
        posted_s = time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*all_gather_into_tensor.*")
            work = dist.all_gather_into_tensor(received.view(-1), sent, group=self._group, async_op=True)
        assert work is not None
        ended_s: list[float] = []
        if self._device.type == "cpu":
            work.get_future().add_done_callback(lambda _: ended_s.append(time.perf_counter()))
        frame = Frame(work, sent, received, posted_s, ended_s)
        self._posted += 1
        self._open.append(frame)
        return frame

    def take(self, frames: list[Frame], count: int, dtype: torch.dtype) -> list[Tensor]:
        """Each rank's payload of `count` elements, in the order of ranks: views of what was received.

        Raises:
            PeerStoppedError: a rank has failed instead of sending its part.
        """
        for frame in frames:
            self._wait(frame)
            self._open.remove(frame)
            if bool(frame.received[:, 0].any()):
                raise PeerStoppedError("another rank has failed")
        size = count * dtype.itemsize
        if len(frames) == 1:
            return [one[HEADER_BYTES : HEADER_BYTES + size].view(dtype) for one in frames[0].received]
        joined = torch.cat([frame.received[:, HEADER_BYTES:] for frame in frames], dim=1)
        return [one[:size].view(dtype) for one in joined]

    def _wait(self, frame: Frame) -> None:
        assert frame.work is not None
        assert frame.sent is not None
        start_s = time.perf_counter()
        frame.work.wait()
        end_s = time.perf_counter()
        self.traffic.waited_s += end_s - start_s
        self.traffic.under_way_s += max(end_s - start_s, (frame.ended_s or [end_s])[0] - frame.posted_s)
        self.traffic.received_bytes += frame.received.numel() - frame.sent.numel()
        frame.work = frame.sent = None

    def settle(self, *, failed: bool) -> bool:
        """Whether any rank has failed; afterwards all have posted, and ended, the same frames. All call together."""
        nothing = torch.zeros(0, dtype=torch.uint8)
        if failed:
            self.post(nothing, failed=True)
        state = torch.tensor([int(failed), self._posted])
        dist.all_reduce(state, op=dist.ReduceOp.MAX)
        someone, posted = state.tolist()
        while self._posted < posted:
            self.post(nothing, failed=True)
        while self._open:
            frame = self._open.popleft()
            assert frame.work is not None
            frame.work.wait()
        return bool(someone)
