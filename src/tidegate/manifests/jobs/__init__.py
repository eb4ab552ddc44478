"""How each kind of job becomes pod sets: here and nowhere else. Names and order are Kueue's."""
