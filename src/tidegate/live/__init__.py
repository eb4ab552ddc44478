"""Running in a cluster: who leads, what is written and what is not, how it is watched."""
