"""The reason catalogue: each reason with its code, evidence and text."""
