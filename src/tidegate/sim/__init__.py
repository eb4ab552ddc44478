"""Simulated clusters: worlds in virtual time."""
