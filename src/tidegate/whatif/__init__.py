"""Explanations of waiting workloads: why they wait, and the smallest changes that would start them, tried on forks."""
