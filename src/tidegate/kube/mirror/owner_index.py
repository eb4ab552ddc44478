"""The owner index: jobs that other jobs created, and pods whose job is not observed yet."""

from __future__ import annotations

#: The longest chain of owners: a TrainJob creates a JobSet, which creates Jobs, which create pods.
_DEEPEST = 8


class OwnerIndex:
    """Owners by uid."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # of a job that another job created
        self._orphans: dict[str, dict[str, None]] = {}  # pods by their root owner, which is not observed yet

    def own(self, uid: str, owner: str) -> list[str]:
        """Note the owner of a job; return the pods that waited for it."""
        self._owners[uid] = owner
        return self.claim(uid)

    def forget(self, uid: str) -> None:
        """Forget a deleted job."""
        self._owners.pop(uid, None)
        self._orphans.pop(uid, None)

    def root(self, uid: str) -> str:
        """The root owner, as far as it is known."""
        for _ in range(_DEEPEST):
            owner = self._owners.get(uid)
            if owner is None:
                break
            uid = owner
        return uid

    def await_job(self, uid: str, pod: str) -> None:
        """Note a pod whose job is not observed yet."""
        self._orphans.setdefault(uid, {})[pod] = None

    def claim(self, uid: str) -> list[str]:
        """Remove and return the pods that waited for a job."""
        return list(self._orphans.pop(uid, ()))
