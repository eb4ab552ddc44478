"""The tables of the state, one module each: the table class, and its columns as constants for kernels.

Python reads `state.nodes.idle[row]`, a kernel `hot.nodes[row, nodes.IDLE]`.
"""
