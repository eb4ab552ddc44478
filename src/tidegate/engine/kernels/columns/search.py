"""Numbers of a victim search.

Candidates, levels, the highest allowed level, workloads taken out, pods planned; of the best so far the loss, the
victims and the pods; whether the first node is one not tried before; for quota the queue, whether it may borrow, fair
sharing, and whether it is entitled; whether only some nodes are allowed; the node that is weighed, from 1 (0: none),
and whether the nodes are weighed for the first pod that needs one cleared; whether victims may be evicted in another
order than they are found in, and whether that order forbade one.
"""

(
    CANDIDATES, LEVELS, MOST_LEVEL, TAKEN, PLANNED, BEST_LOSS, BEST_TAKEN, BEST_PLANNED, FORCES_FIRST,
    QUEUE, BORROWING, FAIR, ENTITLED, RESTRICTED, WEIGHED, WEIGHED_FIRST, ANY_ORDER, ORDER_FORBIDS,
) = range(18)  # fmt: skip

COLUMNS = ORDER_FORBIDS + 1
