"""Planes of `QuotaReservations.claims`: for each workload, one number for each resource that it asks for."""

FLAVOR_RESOURCE, AMOUNT, RESERVED_FLAVOR_RESOURCE = range(3)
