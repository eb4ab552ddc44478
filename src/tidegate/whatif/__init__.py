"""What would start a waiting workload: changes tried on forks of the state, and the smallest one of each kind."""
