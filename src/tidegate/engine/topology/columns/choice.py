"""What a part of the search returns next to its value.

The level and number of the chosen domains, the leaf of the leader, the domain that all pods must be in and its level.
Of a greedy try of the balanced search: the domains it takes, the last one with the leader, the last one without, and
the best threshold and siblings so far.
"""

LEVEL, CHOSEN, LEADER, WITHIN, WITHIN_LEVEL, TAKEN, LAST_LED, LAST, THRESHOLD, FIRST, END = range(11)

COLUMNS = END + 1
