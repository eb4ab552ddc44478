"""Kueue's decision tables come out as Kueue decides them, but for the cases named here."""

from __future__ import annotations

import kueue_cases
from kueue import RUNNERS
from shared import shared
from tidegate.jit.registry import kernels_as

CYCLES = "scheduler.runScheduleTestCases"
_VARIANTS = "skipped: ConcurrentAdmission (alpha): several flavors are not raced for one workload"

#: Cases that do not pass, each with the reason. One that begins to pass is taken out of the list.
NOT_AS_KUEUE = {
    (CYCLES, "multiple preemptions within cq when fair sharing"): (
        "its queues name preemption without reclaimWithinCohort, which Kueue's API server sets to Never before anyone "
        "sees them; the case is decided on the field being empty, which is neither Never nor a policy"
    ),
    (CYCLES, "concurrent admission: more favorable variant evicts less favorable sibling"): _VARIANTS,
    (CYCLES, "concurrent admission: less favorable variant is skipped when more favorable sibling is admitted"): (
        _VARIANTS
    ),
    (CYCLES, "concurrent admission: migration is stopped when target flavor is below LastAcceptableFlavorName"): (
        _VARIANTS
    ),
}


def test_every_case_but_those_named_is_decided_as_kueue_decides_it():
    folder = shared("cases/kueue")
    with kernels_as(compiled=False):  # small cases: quicker than to compile
        outcomes = [kueue_cases.decide_case(case, table) for case, table in kueue_cases.cases_in(folder, "")]
    decided = [one for one in outcomes if one.test in RUNNERS]
    assert {one.test for one in outcomes} == {one.test for one in decided}
    missed = {(one.test, one.case): f"{one.outcome}: {one.why}" for one in decided if one.outcome != "passed"}
    assert {key: why for key, why in missed.items() if key not in NOT_AS_KUEUE} == {}
    assert {key for key in NOT_AS_KUEUE if key not in missed} == set()
