"""Kubernetes manifests: dicts in, specs and findings out. Pure: it knows no files."""
