"""Columns of the flags of workloads: removed from the tree for now, preempted in this cycle, victims in order."""

REMOVED, PREEMPTED, VICTIM = range(3)
