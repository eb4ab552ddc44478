"""Capacity planning: floors, bands and plans, found by search and judged by replay."""
