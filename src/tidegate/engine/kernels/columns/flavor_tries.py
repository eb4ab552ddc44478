"""Planes of the flavors that were tried: the one to begin with, and the one to go on with next time."""

RESUME, TRIED = range(2)
