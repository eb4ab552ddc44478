"""Columns of a timed event of the twin; events of one time are in the order in which they were put in."""

AT, ORDER, KIND, NUMBER, GENERATION = range(5)
