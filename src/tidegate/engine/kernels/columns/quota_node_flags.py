"""Columns of the flags of quota nodes: a stack, nothing more to give, first candidate or the entry that competes."""

STACK, SEEN, FIRST = range(3)
