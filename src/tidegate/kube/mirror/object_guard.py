"""The object guard: an exception in the handling of one object is counted and reported, and the loop goes on.

Tenants write most objects, so no object may stop the loop. An object that cannot be handled keeps its last valid
state. A caught exception is still a bug: the log has its trace.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

from tidegate.kube.transport.objects import KubeObject
from tidegate.kube.transport.resources import Resource
from tidegate.kube.transport.writes import Ref

#: The longest error text: it may quote a tenant's text.
_LONGEST = 400


class ObjectFailure(NamedTuple):
    """A failure to handle an object."""

    ref: Ref
    error: str
    trace: str


def failure_of(ref: Ref, error: BaseException) -> ObjectFailure:
    """An exception as a failure, with its trace."""
    text = f"{type(error).__name__}: {error}"[:_LONGEST]
    return ObjectFailure(ref, text, "".join(traceback.format_exception(error, limit=-8))[-4_000:])


class ObjectGuard:
    """Catches exceptions in the handling of single objects."""

    def __init__(self, report: Callable[[ObjectFailure], None]) -> None:
        self._report = report
        self.failures: Counter[str] = Counter()  # by plural and group
        self.latest: ObjectFailure | None = None

    def over(self, ref: Ref) -> GuardedObject:
        """Guard the handling of an object in a with statement."""
        return GuardedObject(self, ref)

    def note(self, failure: ObjectFailure) -> None:
        """Count and report a failure."""
        self.failures[failure.ref.resource.full_plural] += 1
        self.latest = failure
        self._report(failure)


class GuardedObject(NamedTuple):
    """An object that is being handled."""

    guard: ObjectGuard
    ref: Ref

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            return False
        self.guard.note(failure_of(self.ref, error))
        return True


def guarded(resource: Resource, shrink: Callable[[Any], object]) -> Callable[[KubeObject], object]:
    """A shrink function that returns a failure instead of raising."""

    def understand(thing: KubeObject) -> object:
        try:
            return shrink(thing)
        except Exception as error:  # noqa: BLE001 - data from outside
            meta = thing.metadata
            return failure_of(Ref(resource, meta.namespace, meta.name, meta.uid), error)

    return understand
