"""Synthetic demand: tables drawn from a demand model."""
