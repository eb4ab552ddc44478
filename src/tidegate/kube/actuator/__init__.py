"""Decisions carried out: the writes that start, stop and bind work, and the Events that explain them."""
