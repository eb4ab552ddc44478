"""The tidegate.yaml file format: schema, quantities with units, validation with error paths, conversion to specs."""
