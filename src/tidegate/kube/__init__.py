"""The only Kubernetes client: list and watch to facts, decisions to writes."""
