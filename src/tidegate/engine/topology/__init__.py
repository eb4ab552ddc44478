"""Topology-aware scheduling: trees of domains, the search for a domain assignment, and what assignments use.

Must not know: queues, victims and cycles.
"""
