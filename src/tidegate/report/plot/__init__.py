"""Reports as plots."""
