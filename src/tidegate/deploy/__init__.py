"""What a cluster must have for Tidegate to run in it, and whether it has it."""
