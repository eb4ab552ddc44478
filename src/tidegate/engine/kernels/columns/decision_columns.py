"""Columns of a decision as kernels write it, in the order of its block; the evidence is four numbers.

Workloads and nodes are rows here, and external numbers in the batch that leaves the engine.
"""

KIND, WORKLOAD, POD, NODE, DEVICES, CODE, CAUSE, EVIDENCE = range(8)
COLUMNS = EVIDENCE + 4
