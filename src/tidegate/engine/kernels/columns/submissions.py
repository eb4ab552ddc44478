"""Columns of a submitted workload, as the fast path of the twin hands it to the engine."""

SUBMITTED, WORK_CLASS, TIE, ESTIMATE = range(4)

COLUMNS = ESTIMATE + 1
