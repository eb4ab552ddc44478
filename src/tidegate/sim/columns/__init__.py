"""Columns of the tables of the fast path, one module for each table."""
