"""How good a run was: waits, completion times, busy time, fragmentation, fairness."""
