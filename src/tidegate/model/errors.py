"""The base of every exception that Tidegate raises on purpose."""

from __future__ import annotations


class TidegateError(Exception):
    """Something that Tidegate cannot do; the text says why."""


class UserError(TidegateError):
    """A mistake that the user can correct; the text says how."""
