"""Talking to the API server: connections, lists, watches, writes with backoff. It does not know what objects mean."""
