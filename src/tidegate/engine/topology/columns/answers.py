"""Numbers of an answer.

Slices that would fit, slices needed, pods in a slice, the level, the question that failed, nodes that were looked at
and how many of these have a taint, other labels or are outside; slices that fit in each layer.
"""

FITS, NEEDED, SIZE, LEVEL, QUESTION, NODES, TAINTED, UNMATCHED, EXTERNAL, LAYER, LAYER_2, LAYER_3 = range(12)

COLUMNS = LAYER_3 + 1
