"""How many rows of the log are written."""

STEPS, FACTS = range(2)
