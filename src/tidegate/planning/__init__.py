"""What capacity does this demand need: floors, bands and plans, found by search with the twin as the judge."""
