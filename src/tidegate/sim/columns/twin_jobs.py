"""Columns of a job of the twin, after those of its submission: how it behaves, then how far it is."""

from tidegate.engine.kernels.columns import submissions

(
    LOAD, RESTART_COST, IDLE_TAIL, CHECKPOINT, ROW, GENERATION, LEFT, RESTARTS, WORK_FROM, BUSY_FROM, BUSY_UNTIL,
    OBSERVED, TERMINATING, ADMITTED, KEPT,
) = range(submissions.COLUMNS, submissions.COLUMNS + 15)  # fmt: skip

COLUMNS = KEPT + 1
