"""Who belongs to whom: jobs that other jobs made, and pods whose job is not known yet."""

from __future__ import annotations

#: Generations between a pod and the job that speaks for it: a TrainJob makes a JobSet, that Jobs, those pods.
_DEEPEST = 8


class OwnerIndex:
    """Owners by uid."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # of a job that another job made
        self._orphans: dict[str, dict[str, None]] = {}  # pods by their eldest known ancestor, whose job is not known

    def own(self, uid: str, owner: str) -> list[str]:
        """A job belongs to another; the pods that were waiting to know."""
        self._owners[uid] = owner
        return self.claim(uid)

    def forget(self, uid: str) -> None:
        """A job is gone."""
        self._owners.pop(uid, None)
        self._orphans.pop(uid, None)

    def root(self, uid: str) -> str:
        """The eldest known ancestor."""
        for _ in range(_DEEPEST):
            owner = self._owners.get(uid)
            if owner is None:
                break
            uid = owner
        return uid

    def await_job(self, uid: str, pod: str) -> None:
        """A pod belongs to a job that is not known."""
        self._orphans.setdefault(uid, {})[pod] = None

    def claim(self, uid: str) -> list[str]:
        """The pods that waited for a job to be known."""
        return list(self._orphans.pop(uid, ()))
