"""Times of the twin in milliseconds: the cycle, the latency of a decision, a start, and the grace of a victim."""

CYCLE, LATENCY, START, GRACE = range(4)
