"""Planes of `QuotaReservations.claims`: for each workload, one number for each resource that it asks for."""

LOT, AMOUNT, RESERVED_LOT = range(3)
