"""Counters of the topology view of a cycle.

Questions that are asked now, rows used of what was found and of the assignments held, options of the search, and
whether workloads without an assignment can be preempted, as in Tidegate's own mode.
"""

ASKED, FOUND, ASSIGNMENTS, OPTIONS, PLACES = range(5)

COLUMNS = PLACES + 1
