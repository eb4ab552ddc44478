"""Columns of the steps that the balanced search has reached.

Pods left, domain taken, step before, next step of the same kind, next of the same hash, and the kind.
"""

PODS, DOMAIN, BACK, NEXT, LINK, KIND = range(6)

COLUMNS = KIND + 1
