"""Columns of a preemption candidate: what ranks it, who it is, how it may be preempted, and the next of its queue."""

CLAIM, QUEUE, USED, PRIORITY, GRANTED, SUBMITTED, TIE, WORKLOAD, LCA, VARIANT, NEXT = range(11)

COLUMNS = NEXT + 1
