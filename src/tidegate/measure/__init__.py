"""How good it was: waits, completion times, busy time, fragmentation, fairness."""
