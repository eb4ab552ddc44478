"""The words of the field: frozen specs, units, facts, decisions and the reason catalogue."""
