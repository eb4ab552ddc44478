"""Planes of a flavor assignment.

The flavor-resource plus one of each request, its mode, how high it borrows, and the flavor-resource of its first
nomination.
"""

FLAVOR_RESOURCE, MODE, LEVEL, NOMINATED = range(4)
