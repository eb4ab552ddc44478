"""The data model: frozen specs, units, facts, decisions and the reason catalogue. Pure."""
