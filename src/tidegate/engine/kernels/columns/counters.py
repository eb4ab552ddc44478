"""Counters of a cycle's scratch.

SPARED is 1 if a workload was no candidate because it was placed in this very step; EPOCH_BOUND if the external epoch
kept a workload from being a candidate, or from being tried; CLAIMED if a head keeps quota for this cycle only; the last
two are the time, and the external epoch in which no workload is preempted twice.
"""

(
    REQUESTED, CANDIDATES, TARGETS, VICTIMS, UNDONE, ENTRIES, OVERFLOW, OTHER_QUEUES, RECLAIMERS, SPARED,
    EPOCH_BOUND, CLAIMED, NOW_MS, EXTERNAL,
) = range(14)  # fmt: skip

COLUMNS = EXTERNAL + 1
