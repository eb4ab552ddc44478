"""Quantiles and confidence intervals: the one definition of each, for every package above."""
