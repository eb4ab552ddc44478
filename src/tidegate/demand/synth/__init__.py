"""Synthetic demand: tables that are drawn from a demand model."""
