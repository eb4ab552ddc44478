"""Demand: the canonical tables, and the model that is fitted to them."""
