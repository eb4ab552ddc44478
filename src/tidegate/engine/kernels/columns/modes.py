"""How well an assignment fits; larger is better, as Kueue numbers them.

WAIT, of Tidegate's own mode, is worse than preemption: other workloads use the quota, and none may be preempted.
"""

NO_FIT, PREEMPT, DEFERRED, FIT = range(4)
WAIT = -2
