"""Whose turn it is: keys of waiting domains, of which the first ones are always sorted and the rest lies unsorted.

A key is (urgency, number); smaller ones come first. Taking the first k is a slice of the sorted head; a head that runs
empty is refilled by a selection over the rest. Heads are about √(4 · waiting · taken) long, which balances the cost of
selections against that of insertions, so that both stay far below a heap of Python objects at every batch size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

LEAST_HEAD = 1024
KEY_BYTES = 24
_LAST = (math.inf, np.iinfo(np.int64).max)


@dataclass(slots=True)  # not frozen: that triples the cost of making one, and small batches make many
class Keys:
    """Parallel arrays [n]: how urgent (smallest first), the number that settles ties, and where the rest lies."""

    urgency: Floats
    number: Numbers
    slot: Numbers

    @classmethod
    def room(cls, count: int) -> Keys:
        """Room for so many, not filled in yet."""
        return cls(np.empty(count), np.empty(count, np.int64), np.empty(count, np.int64))

    def __len__(self) -> int:
        return len(self.urgency)

    def __getitem__(self, index: slice | NDArray[np.bool_] | Numbers) -> Keys:
        return Keys(self.urgency[index], self.number[index], self.slot[index])

    def key(self, index: int) -> tuple[float, int]:
        return float(self.urgency[index]), int(self.number[index])

    def sorted(self) -> Keys:
        return self if len(self) < 2 else self[np.lexsort((self.number, self.urgency))]

    def before(self, key: tuple[float, int]) -> NDArray[np.bool_]:
        urgency, number = key
        before: NDArray[np.bool_] = self.urgency < urgency
        before |= (self.urgency == urgency) & (self.number < number)
        return before

    def count_before(self, key: tuple[float, int]) -> int:
        """How many come before `key`; of sorted keys."""
        urgency, number = key
        low = int(np.searchsorted(self.urgency, urgency, side="left"))
        high = int(np.searchsorted(self.urgency, urgency, side="right"))
        return low + int(np.searchsorted(self.number[low:high], number, side="left"))


class TurnQueue:
    """Keys in the order of their turn. Every key of the head comes before `_bound`, every other one does not."""

    def __init__(self) -> None:
        self._head = Keys.room(0)
        self._taken = 0  # of the head
        self._rest = Keys.room(0)  # arrays with room at their ends
        self._rest_count = 0
        self._bound: tuple[float, int] = _LAST
        self._wanted = 1  # domains that were last asked for at a time

    def __len__(self) -> int:
        return len(self._head) - self._taken + self._rest_count

    @property
    def nbytes(self) -> int:
        return KEY_BYTES * (len(self._head) + len(self._rest))

    # ------------------------------------------------------------ in

    def push(self, keys: Keys) -> None:
        before = keys.before(self._bound)
        count = np.count_nonzero(before)
        if count == len(keys):
            self._insert(keys.sorted())
        elif count:
            self._insert(keys[before].sorted())
            self._append(keys[~before])
        else:
            self._append(keys)

    def _insert(self, new: Keys) -> None:
        old = self._head[self._taken :]
        self._head, self._taken = _merged(old, new), 0
        longest = 2 * self._head_length(len(self))
        if len(self._head) > longest:
            keep = longest // 2
            self._bound = self._head.key(keep)
            self._append(self._head[keep:])
            self._head = _copied(self._head[:keep])

    def _append(self, keys: Keys) -> None:
        count = self._rest_count + len(keys)
        if count > len(self._rest):
            room = max(count, 2 * len(self._rest), LEAST_HEAD)
            self._rest = _with_room(self._rest[: self._rest_count], room)
        for array, new in zip(_arrays(self._rest), _arrays(keys), strict=True):
            array[self._rest_count : count] = new
        self._rest_count = count

    # ------------------------------------------------------------ out

    def first(self) -> tuple[float, int] | None:
        """The key whose turn is next."""
        if self._taken == len(self._head):
            self._refill()
        return self._head.key(self._taken) if self._taken < len(self._head) else None

    def take(self, count: int, before: tuple[float, int] | None) -> Keys:
        """Remove and give the next keys, sorted: at most `count`, all of them before the key `before`."""
        self._wanted = max(1, count)
        if self._taken == len(self._head):
            self._refill()
        found = self._head[self._taken : self._taken + count]
        if before is not None and len(found) and found.key(-1) >= before:
            found = found[: found.count_before(before)]
        self._taken += len(found)
        return found

    def _head_length(self, waiting: int) -> int:
        return max(LEAST_HEAD, 2 * self._wanted, math.isqrt(4 * waiting * self._wanted))

    def _refill(self) -> None:
        rest = self._rest[: self._rest_count]
        self._taken = 0
        length = self._head_length(len(rest))
        if len(rest) <= length:
            self._head, self._rest, self._rest_count = rest.sorted(), Keys.room(0), 0
            self._bound = _LAST
            return
        chosen = _first_of(rest, length)
        self._head = rest[chosen].sorted()
        left = rest[~chosen]
        for array, values in zip(_arrays(self._rest), _arrays(left), strict=True):
            array[: len(left)] = values
        self._rest_count = len(left)
        urgency, number = self._head.key(-1)
        self._bound = (urgency, number + 1)

    # ------------------------------------------------------------ all of them

    def all_sorted(self) -> Keys:
        """Every key, in order; the queue stays as it is."""
        head, rest = self._head[self._taken :], self._rest[: self._rest_count].sorted()
        return _joined(head, rest)

    def slots(self) -> Numbers:
        """[waiting] of every key, in no order."""
        return np.concatenate([self._head.slot[self._taken :], self._rest.slot[: self._rest_count]])

    def reset(self, keys: Keys) -> None:
        """Hold these sorted keys and no others."""
        length = self._head_length(len(keys))
        self._head, self._taken = _copied(keys[:length]), 0
        self._rest = _copied(keys[length:])
        self._rest_count = len(self._rest)
        self._bound = keys.key(length) if self._rest_count else _LAST


def _arrays(keys: Keys) -> tuple[Floats, Numbers, Numbers]:
    return keys.urgency, keys.number, keys.slot


def _copied(keys: Keys) -> Keys:
    return Keys(keys.urgency.copy(), keys.number.copy(), keys.slot.copy())


def _joined(one: Keys, other: Keys) -> Keys:
    return Keys(
        np.concatenate([one.urgency, other.urgency]),
        np.concatenate([one.number, other.number]),
        np.concatenate([one.slot, other.slot]),
    )


def _with_room(keys: Keys, room: int) -> Keys:
    grown = Keys.room(room)
    for array, old in zip(_arrays(grown), _arrays(keys), strict=True):
        array[: len(old)] = old
    return grown


def _merged(old: Keys, new: Keys) -> Keys:
    """Two sorted lists as one."""
    if not len(old) or not len(new):
        return _copied(new if not len(old) else old)
    place = np.searchsorted(old.urgency, new.urgency, side="right")
    # Equal ones: as a rule the new one is the younger.
    tied = np.flatnonzero(old.urgency[place - 1] == new.urgency)
    if len(tied) and np.count_nonzero((place[tied] > 0) & (new.number[tied] < old.number[place[tied] - 1])):
        return _joined(old, new).sorted()
    count = len(old) + len(new)
    place += np.arange(len(new))
    is_old = np.ones(count, np.bool_)
    is_old[place] = False
    merged = Keys.room(count)
    for array, left, right in zip(_arrays(merged), _arrays(old), _arrays(new), strict=True):
        array[is_old] = left
        array[place] = right
    return merged


def _first_of(keys: Keys, count: int) -> NDArray[np.bool_]:
    """[n] marks of the `count` first of more keys."""
    last = np.partition(keys.urgency, count - 1)[count - 1]
    chosen: NDArray[np.bool_] = keys.urgency < last
    tied = np.flatnonzero(keys.urgency == last)
    missing = count - int(chosen.sum())
    if missing < len(tied):
        tied = tied[np.argpartition(keys.number[tied], missing - 1)[:missing]]
    chosen[tied] = True
    return chosen
