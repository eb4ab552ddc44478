"""Tidegate: GPU scheduling for AI work on Kubernetes. Measure the tide, then open the gate."""

__version__ = "0.1.0"
