"""Replays that count: the inner loop of every search over capacity."""
