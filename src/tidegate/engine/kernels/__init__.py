"""The inner loops of the engine, in the subset of Python that numba compiles."""
