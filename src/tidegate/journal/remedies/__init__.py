"""What would start a waiting workload, found by trying on forks; and what a change that somebody names would do."""
