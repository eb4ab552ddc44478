"""Reports as text, HTML, plots and plain data."""
