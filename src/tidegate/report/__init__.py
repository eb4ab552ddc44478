"""Results for people: text, HTML, plots and plain data. It computes nothing of its own."""
