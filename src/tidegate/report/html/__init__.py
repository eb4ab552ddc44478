"""Reports as HTML pages that need no network."""
