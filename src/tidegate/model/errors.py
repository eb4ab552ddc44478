"""Base classes of Tidegate's exceptions; their texts say what is wrong and what to do."""

from __future__ import annotations


class TidegateError(Exception):
    """Base of every exception that Tidegate defines."""


class UserError(TidegateError, ValueError):
    """Something that a user wrote cannot be used: a file, an option, a manifest, an amount."""
