"""Columns of a step in the log of the fast path."""

NOW, FACTS, DECISIONS, CYCLES, WAKE = range(5)
