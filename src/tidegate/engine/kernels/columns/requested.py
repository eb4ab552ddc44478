"""Columns of the flavor-resources that an entry requests.

REST and ASSUMED are indexed by flavor-resource: what the pod sets before this one take, and what entries with a
reservation get once terminating work is gone.
"""

FLAVOR_RESOURCE, AMOUNT, NEED, REST, ASSUMED = range(5)

COLUMNS = ASSUMED + 1
