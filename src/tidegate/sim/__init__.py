"""A cluster that is not there: worlds in virtual time."""
