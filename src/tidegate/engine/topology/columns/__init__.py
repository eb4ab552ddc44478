"""Columns of the tables that the topology search reads and writes, one module for each table."""
