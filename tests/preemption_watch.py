"""A cluster that is watched: who is evicted for whom, who starts, and what must never happen in one step."""

from __future__ import annotations

from builders import Cluster, Said
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactBatch, FactKind
from tidegate.model.policy import AdmissionKind
from tidegate.state.tables.workloads import Phase

#: Facts that only say what came of decisions.
ANSWERS = (FactKind.POD_STARTED, FactKind.POD_GONE, FactKind.OUTCOME)


class Watch:
    """Steps of a cluster, each of them looked at.

    In every mode: who leaves already is not preempted. But for Kueue's: nothing is placed and preempted in one step,
    and nobody is preempted twice between two facts from outside.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.victims: dict[str, list[str]] = {}  # of the latest step, by the workload they leave for
        self.placed: set[str] = set()  # in the latest step
        self.epoch: set[str] = set()  # preempted since the last fact from outside
        self.ever: list[tuple[str, str]] = []  # every victim, and for whom

    @property
    def own(self) -> bool:
        """Whether preemption is ours, not a copy of Kueue's."""
        policy = self.cluster.policy
        return not policy.shares.queues or policy.admission is AdmissionKind.TIDEGATE

    def step(self, after_ms: int = 1_000) -> list[Said]:
        """One step."""
        events = self.cluster._facts.batch()
        outside = self._is_outside(events)
        gone = {int(n) for n in events.subject[events.kind == FactKind.POD_GONE]}
        before = {name for name, number in self.cluster.numbers.items() if number not in gone and self.leaves(name)}
        said = self.cluster.step(after_ms)
        self._note()
        self._check(before, said, outside=outside)
        return said

    def _is_outside(self, events: FactBatch) -> bool:
        """Whether facts say more than what came of decisions."""
        if any(FactKind(int(kind)) not in ANSWERS for kind in events.kind):
            return True
        gone = events.subject[events.kind == FactKind.POD_GONE].tolist()
        return any(self.phase(self.cluster.ids[number]) is not Phase.TERMINATING for number in gone)

    def _note(self) -> None:
        decisions, ids = self.cluster.result.decisions, self.cluster.ids
        self.victims = {}
        for row in (decisions.kind == DecisionKind.PREEMPT).nonzero()[0].tolist():
            cause = ids.get(int(decisions.cause[row]), "")
            self.victims.setdefault(cause, []).append(ids[int(decisions.workload[row])])
            self.ever.append((ids[int(decisions.workload[row])], cause))
        self.placed = {ids[int(number)] for number in decisions.workload[decisions.kind == DecisionKind.PLACE]}

    def _check(self, leaving: set[str], said: list[Said], *, outside: bool) -> None:
        away = [victim for victims in self.victims.values() for victim in victims]
        again = {one.id for one in said if one.kind in (DecisionKind.ADMIT, DecisionKind.PLACE)}
        leaving = (leaving | {one.id for one in said if one.kind is DecisionKind.EVICT}) - again  # its node may be gone
        assert len(away) == len(set(away)), f"preempted twice in one step: {sorted(away)}"
        assert not set(away) & leaving, f"preempted though leaving: {sorted(set(away) & leaving)}"
        if not self.own:
            return
        assert not set(away) & self.placed, f"placed and preempted in one step: {sorted(set(away) & self.placed)}"
        self.epoch = set() if outside else self.epoch
        assert not set(away) & self.epoch, f"preempted again, with nothing from outside: {set(away) & self.epoch}"
        self.epoch |= set(away)

    def phase(self, name: str) -> Phase:
        """Where a workload is in its life; NONE: it is over."""
        row = self.cluster.state.workload_numbers.row(self.cluster.numbers[name])
        return Phase(int(self.cluster.state.workloads.phase[row])) if row >= 0 else Phase.NONE

    def leaves(self, name: str) -> bool:
        """Whether a workload is told to go and not gone."""
        return self.phase(name) is Phase.TERMINATING

    def runs(self, name: str) -> bool:
        """Whether a workload has its place, with every pod."""
        if self.phase(name) not in (Phase.ASSUMED, Phase.RUNNING):
            return False
        state = self.cluster.state
        row = state.workload_numbers.row(self.cluster.numbers[name])
        pod, pods = int(state.workloads.first_pod[row]), 0
        while pod >= 0:
            pod, pods = int(state.pods.next[pod]), pods + 1
        return pods == int(state.work_classes.pods[state.workloads.work_class[row]])

    def leaving(self) -> list[str]:
        """Everybody who is told to go and not gone."""
        return sorted(name for name in self.cluster.numbers if self.leaves(name))

    def all_gone(self, *, but: int = 0) -> list[str]:
        """Tell that those who leave are gone, all but so many of them."""
        names = self.leaving()
        names = names[: len(names) - but]
        for name in names:
            self.cluster.tell(FactKind.POD_GONE, name)
        return names

    def start_all(self) -> None:
        """Tell that all that was placed has started."""
        for name in sorted(self.cluster.numbers):
            if self.phase(name) is Phase.ASSUMED:
                self.cluster.tell(FactKind.POD_STARTED, name)
