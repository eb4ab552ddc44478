"""A Prometheus server as a source: asked over HTTP in pieces, with patience, and able to take up where it broke off."""
