"""Arguments, files, wiring: the only place that knows every package."""
