"""Planes of `QuotaNodes.quota`: for each quota node, one number for each flavor and resource."""

NOMINAL, BORROW_LIMIT, LEND_LIMIT, DEFINED, SUBTREE, USAGE = range(6)
