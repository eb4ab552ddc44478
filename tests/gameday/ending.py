"""The end of the day: no more work comes, and what is there ends, however long its queue is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from gameday.ground import GPUS_OF_NODE
from gameday.load import Work
from gameday.policies import excess
from gameday.records import Records

#: How much longer is waited while work still ends.
MOST_S = 1800.0
#: How long work may wait though nothing holds what it needs.
IDLE_S = 60.0
_LOOK_S = 5.0


class Ending:
    """Waits for a time, again after each work that ends, and half an hour at most beyond that."""

    def __init__(self, records: Records, works: Mapping[str, Work], wait_s: float, now_s: float) -> None:
        self._records, self._works, self._wait_s = records, works, wait_s
        self._until_s, self._latest_s = now_s + wait_s, now_s + wait_s + MOST_S
        self._progress_s, self._left = now_s, len(works)
        self._looked_s, self._fits_since = 0.0, dict[str, float]()

    def see(self, now_s: float, left: Collection[str]) -> None:
        """Note which works have not ended yet."""
        if len(left) < self._left:
            self._progress_s = now_s
            self._until_s = min(now_s + self._wait_s, self._latest_s)
        self._left = len(left)
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        for name in self._works:
            if name in left and self._waits(name) and self._fits(name):
                self._fits_since.setdefault(name, now_s)
            else:
                self._fits_since.pop(name, None)

    def left_s(self, now_s: float) -> float:
        """How long is still waited if no work ends until then."""
        return self._until_s - now_s

    def endless(self, now_s: float, left: Collection[str]) -> Iterator[tuple[str, str]]:
        """Work that should have ended, each with why: one that waits in a long queue while others end is none."""
        for name in left:
            work = self._records.works.get(name)
            if work is None:
                yield name, "it was never seen"
            elif now_s - self._progress_s >= self._wait_s:
                yield name, f"no work has ended for {now_s - self._progress_s:.0f} s"
            elif work.held() and now_s - work.admitted_s >= self._wait_s:
                yield name, f"it was let go {now_s - work.admitted_s:.0f} s ago"
            elif now_s - self._fits_since.get(name, now_s) >= IDLE_S:
                yield name, f"what it needs has been free for {now_s - self._fits_since[name]:.0f} s"

    def _waits(self, name: str) -> bool:
        work = self._records.works.get(name)
        return work is not None and not work.held()

    def _fits(self, name: str) -> bool:
        """Whether neither quota nor room is held by others."""
        work, made, limits = self._records.works[name], self._works[name], self._records.limits
        pods = work.size or made.pods
        used = Counter(self._records.used())
        if not limits or work.queue not in limits[-1][1]:
            return False
        more = used + Counter({work.queue: pods * made.gpus})
        return not excess(limits[-1][1], more, used) and self._rooms(made.gpus) >= pods

    def _rooms(self, gpus: int) -> int:
        """How many pods of so many GPUs nodes have room for."""
        free = {node.name: GPUS_OF_NODE for node in self._records.nodes.values() if node.usable}
        for pod in self._records.pods.values():
            if pod.holds and pod.node in free:
                free[pod.node] -= pod.gpus
        return sum(max(left, 0) // gpus for left in free.values())


__all__ = ["IDLE_S", "MOST_S", "Ending"]
