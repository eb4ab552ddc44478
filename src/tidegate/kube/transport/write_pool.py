"""The write pool: so many writes in flight, those of one object in order, with retries and an adaptive rate limit.

Transient errors are retried after a backoff, or after the server's Retry-After. 429 Too Many Requests also halves the
number in flight, which then grows again. A write without a response has not failed: the object is read to find out,
and the outcome stays unknown if that does not tell.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tidegate.kube.transport.backoff import Backoff, Jitter
from tidegate.kube.transport.client import JSON_PATCH, Client
from tidegate.kube.transport.response import NOT_ALLOWED, ApiResponse
from tidegate.kube.transport.writes import Write
from tidegate.model.facts import WriteOutcome

_TOO_MANY = 429
_FORBIDDEN = (401, 403)
_CONFLICT, _INVALID = 409, 422
#: The cause of a 429 for an eviction that a PodDisruptionBudget does not allow; it does not slow other writes.
BUDGET = "DisruptionBudget"
_DEADLINE = "DeadlineExceeded"

#: Between two checks whether writes have ended.
_LOOK_EVERY_S = 0.02


class WriteResult(NamedTuple):
    """The result of a write."""

    outcome: WriteOutcome
    answer: ApiResponse
    tries: int


class WriteLimits(NamedTuple):
    """The limits of the write pool."""

    in_flight: int = 32
    least_in_flight: int = 4
    deadline_s: float = 30.0  # after which a write is not retried
    unready_s: float = 10.0  # how long 401 and 403 of a server that has just started are retried


#: Called with each result, in the event loop.
ResultCallback = Callable[[WriteResult], None]


@dataclass
class _Job:
    write: Write
    record: ResultCallback
    backoff: Backoff
    until: float = 0.0  # the deadline by the loop's clock; 0: not tried yet
    doubtful: bool = False  # an earlier try may have succeeded


class WritePool:
    """Sends writes, in one event loop."""

    def __init__(
        self,
        client: Client,
        jitter: Jitter,
        limits: WriteLimits = WriteLimits(),  # noqa: B008 - a tuple
        may_write: Callable[[], bool] = lambda: True,
        on_bug: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._client, self._draw, self.limits = client, jitter, limits
        self._may_still_write = may_write
        self._on_bug = on_bug or _raise  # called with the exception of a try
        self._closed = False  # nothing more is sent
        self._waiting: dict[str, deque[_Job]] = {}  # by key; the first of each is in flight
        self._ready: deque[_Job] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.backlog = 0  # writes that have not ended
        self.allowed = float(limits.in_flight)
        self.most_in_flight = 0
        self.tries = 0
        self.slowed = 0  # responses with 429

    def submit(self, write: Write, record: ResultCallback) -> None:
        """Send a write after the earlier ones of its key, and call back with the result."""
        job = _Job(write, record, Backoff(self._draw))
        line = self._waiting.setdefault(write.key, deque())
        line.append(job)
        self.backlog += 1
        if len(line) == 1:
            self._ready.append(job)
            self._start_ready()

    def __len__(self) -> int:
        return self.backlog

    async def drain(self, most_s: float, in_flight_s: float) -> bool:
        """Wait so long for all writes, then send nothing more and wait so long for those in flight.

        False: some are still in flight.
        """
        await _until(lambda: not self.backlog, most_s)
        self._closed = True
        await _until(lambda: not self._tasks, in_flight_s)
        return not self._tasks

    async def close(self) -> None:
        """Cancel the writes in flight; their outcome is unknown."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start_ready(self) -> None:
        while self._ready and len(self._tasks) < int(self.allowed):
            task = asyncio.create_task(self._try(self._ready.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._finished)
            self.most_in_flight = max(self.most_in_flight, len(self._tasks))

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        bug = task.exception()
        if bug is not None:
            self._on_bug(bug)
        self._start_ready()

    def _may_write(self) -> bool:
        """Whether a request may be sent: checked before each try, and again when its connection is open."""
        return not self._closed and self._may_still_write()

    # -- one try -----------------------------------------------------------------------------------------------

    async def _try(self, job: _Job) -> None:
        loop = asyncio.get_running_loop()
        job.until = job.until or loop.time() + self.limits.deadline_s
        if not self._may_write():
            self._withdraw(job)
            return
        self.tries += 1
        answer = await self._client.ask(job.write.request, self._may_write)
        if answer.reason == NOT_ALLOWED:
            self._withdraw(job)
            return
        self._adapt(answer)
        job.doubtful = job.doubtful or _is_doubtful(answer)
        if not (answer.may_pass or self._may_be_unready(job, answer)):
            self._finish(job, await self._interpret(job, answer))
            return
        pause_s = job.backoff.next_ms(answer.retry_after_ms) / 1000
        if loop.time() + pause_s > job.until:
            self._finish(job, await self._give_up(job, answer))
            return
        loop.call_later(pause_s, self._due, job)  # other keys go on; later writes of this key wait

    def _withdraw(self, job: _Job) -> None:
        """End a write because the term is over; one that was never sent has failed."""
        outcome = WriteOutcome.UNKNOWN if job.doubtful else WriteOutcome.FAILED
        self._finish(job, (outcome, ApiResponse(0, NOT_ALLOWED, sent=False)))

    def _may_be_unready(self, job: _Job, answer: ApiResponse) -> bool:
        """Whether the server forbids it because it has just started."""
        waited_s = self.limits.deadline_s - (job.until - asyncio.get_running_loop().time())
        return answer.status in _FORBIDDEN and waited_s < self.limits.unready_s

    def _due(self, job: _Job) -> None:
        self._ready.append(job)
        self._start_ready()

    def _adapt(self, answer: ApiResponse) -> None:
        """Adapt the rate limit: half as many in flight after a 429, one more after each good round."""
        if answer.status == _TOO_MANY and BUDGET not in answer.causes:
            self.slowed += 1
            self.allowed = max(self.allowed / 2, float(self.limits.least_in_flight))
        elif answer.status:
            self.allowed = min(self.allowed + 1 / self.allowed, float(self.limits.in_flight))

    async def _interpret(self, job: _Job, answer: ApiResponse) -> tuple[WriteOutcome, ApiResponse]:
        """The outcome of a final response."""
        write = job.write
        if answer.ok or answer.status in write.done_if:
            return WriteOutcome.DONE, answer
        untrue = answer.status == _INVALID and write.request.content_type == JSON_PATCH  # a test in the patch failed
        if (untrue or answer.status == _CONFLICT) and write.look is not None:  # perhaps an earlier try did it
            return await self._look(job, answer, otherwise=WriteOutcome.FAILED)
        return WriteOutcome.FAILED, answer

    async def _give_up(self, job: _Job, answer: ApiResponse) -> tuple[WriteOutcome, ApiResponse]:
        """End a write without more retries: it failed, or its outcome is unknown."""
        late = answer._replace(reason=answer.reason or _DEADLINE)
        if not job.doubtful:
            return WriteOutcome.FAILED, late
        return await self._look(job, late, otherwise=WriteOutcome.UNKNOWN)

    async def _look(self, job: _Job, answer: ApiResponse, otherwise: WriteOutcome) -> tuple[WriteOutcome, ApiResponse]:
        """Read the object to find out whether the write was done."""
        if job.write.look is None or job.write.is_done is None:
            return otherwise, answer
        seen = await self._client.ask(job.write.look)
        if seen.may_pass:
            return WriteOutcome.UNKNOWN, answer
        try:
            done = seen.ok and job.write.is_done(seen.body)
        except msgspec.MsgspecError:
            return WriteOutcome.UNKNOWN, answer
        return (WriteOutcome.DONE if done else otherwise), answer

    def _finish(self, job: _Job, judged: tuple[WriteOutcome, ApiResponse]) -> None:
        job.record(WriteResult(*judged, job.backoff.tries + 1))
        line = self._waiting[job.write.key]
        line.popleft()
        self.backlog -= 1
        if line:
            self._ready.append(line[0])
        else:
            del self._waiting[job.write.key]


def _raise(bug: BaseException) -> None:
    raise bug


async def _until(holds: Callable[[], bool], most_s: float) -> None:
    """Wait until a condition holds, at most so long."""
    for _ in range(math.ceil(most_s / _LOOK_EVERY_S)):
        if holds():
            return
        await asyncio.sleep(_LOOK_EVERY_S)


def _is_doubtful(answer: ApiResponse) -> bool:
    """Whether the request may have been executed, though the response does not say so."""
    return answer.status >= 500 or (answer.status == 0 and answer.sent)
