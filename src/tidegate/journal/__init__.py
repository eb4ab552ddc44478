"""What happened and why: write, read, replay, and say it in words."""
