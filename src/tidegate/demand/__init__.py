"""What is asked of us: the canonical tables of demand, and what is fitted to them."""
