"""Reads files and servers into plain data and canonical tables, with precise errors."""
