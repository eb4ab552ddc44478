"""A Prometheus server as a source: range queries in pieces, with retries, and resumed after a failure."""
