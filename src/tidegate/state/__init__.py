"""What is true now: tables of columns, equivalence classes, fork, digest and checkpoint."""
