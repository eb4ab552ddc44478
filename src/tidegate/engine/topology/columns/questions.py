"""Columns of a question: what one pod set, or the workers and the leader of one group, ask of one tree."""

(
    TREE, MODE, CODE, COUNT, REQUIRED, UNCONSTRAINED, LEVEL, LAYERS, SLICES_ONLY, KIND, FILTER, SET, LEADER_KIND,
    LEADER_SET, FIRST_HELD, HELD, LOST, LEADER_HELD, SIZE, SIZE_2, SIZE_3, SLICE_LEVEL, SLICE_LEVEL_2,
    SLICE_LEVEL_3, SPREAD_LEVEL, SPREAD_MOST, SPREAD_MUST,
) = range(27)  # fmt: skip

COLUMNS = SPREAD_MUST + 1
