"""Planes of the flavors that were tried: the one to begin with, and the one to continue with next time."""

RESUME, TRIED = range(2)
