"""Columns of a workload in a victim search.

Work lost by its eviction; that, by GPU; its GPUs, and their negative; its level, lower goes first (NEVER: it is no
candidate); its row among the preemption candidates; whether it is taken out now.
"""

LOSS, LOSS_BY_GPU, SIZE, LESS_SIZE, LEVEL, CANDIDATE, IS_TAKEN = range(7)

COLUMNS = IS_TAKEN + 1
