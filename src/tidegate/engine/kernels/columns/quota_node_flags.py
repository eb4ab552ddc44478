"""Columns of the flags of quota nodes: a stack, nothing more to give, first candidate or the entry that is put up."""

STACK, SEEN, FIRST = range(3)
