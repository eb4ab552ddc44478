"""Public traces by name: what their columns are, and what they do not say of themselves."""
