"""Columns of the tables that kernels write on during a cycle, one module for each table."""
