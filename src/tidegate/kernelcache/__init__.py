"""Where compiled kernels are kept, and the process that compiles them in the background.

Must not know: what a kernel is, or how one is compiled.
"""
