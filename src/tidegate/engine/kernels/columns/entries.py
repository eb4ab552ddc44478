"""Columns of an entry: the head of a queue in this cycle, as Kueue calls it.

FLAVOR_RESOURCE, MISSING and ASKED are the numbers of a refusal for lack of quota. BEHIND is how high the entry borrows
that is ahead of it in its queue, and for which something is reserved. OVERDUE is 1 if something is reserved for the
entry because it was passed over for longer than the limit.
"""

(
    QUEUE, WORKLOAD, MODE, BORROW, FIRST_TARGET, TARGETS, CODE, FLAVOR_RESOURCE, MISSING, ASKED, STATUS, TRYING,
    RESTRICTED, PENDING, PRIORITY, SUBMITTED, TIE, CLASS, ORDER, REPLACES, AGAIN, AWAITED, FIRST_ASSIGNMENT,
    ASSIGNMENTS, FIRST_NET, NETS, TAKEN, BEHIND, OVERDUE,
) = range(29)  # fmt: skip

COLUMNS = OVERDUE + 1
