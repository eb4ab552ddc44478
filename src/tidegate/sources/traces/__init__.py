"""Public traces by name: their columns, units and clocks."""
