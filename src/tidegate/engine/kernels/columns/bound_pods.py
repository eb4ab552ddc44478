"""Columns of a pod that the world shows bound: workload row, ordinal, node row, pod class; below zero: none."""

WORKLOAD, ORDINAL, NODE, CLASS = range(4)
