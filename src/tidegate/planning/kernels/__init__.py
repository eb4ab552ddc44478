"""Kernels of capacity replays: the inner loop of every search."""
