"""What to do next: `step` applies the facts, decides until nothing more changes, and returns the decisions."""
