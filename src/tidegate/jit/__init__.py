"""Numba: which functions are kernels, how they are compiled, and where compiled code is kept.

Must not know: what a kernel computes.
"""
