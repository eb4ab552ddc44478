"""Columns of what fits in a domain.

Pods and slices, the same next to a leader, leaders (0 or 1), how much the pods prefer the domain, and the units that
are dealt out below the level of slices.
"""

PODS, SLICES, PODS_LED, SLICES_LED, LEADERS, LIKING, UNITS, UNITS_LED = range(8)

COLUMNS = UNITS_LED + 1
