"""Why a topology has no domains for a pod set, as codes; evidence says how much was missing.

Text is made elsewhere, from the code, the numbers and the tally of nodes that were not taken.
"""

from __future__ import annotations

from enum import IntEnum


class TopologyFailure(IntEnum):
    """Codes are stable: a number is never used again for something else."""

    NONE = 0  # it fits
    NO_LEVEL = 1  # it requests no level
    LEVEL_UNKNOWN = 2  # the topology has no such level
    SLICE_LEVEL_UNKNOWN = 3  # nor such a level for slices
    SLICE_SIZE = 4  # a slice without a size, more layers than we place, or a layer that does not divide the one around
    SLICE_ABOVE = 5  # slices at a level wider than that of the pod set, or a layer that is not inside the one around
    UNEVEN = 6  # the pods are not a whole number of slices
    NO_DOMAINS = 7  # no node is up, matches the flavor and has all the labels
    LACKS_ROOM = 8  # fewer slices fit than are needed
    LACKS_LEADER = 9  # the workers fit, but nowhere with their leader
    STALE = 10  # its pods are in a domain that no longer exists, apart from the failed one
    NO_REPLACEMENT = 11  # nothing of it was on the failed node
    UNSETTLED = 12  # a slice fits in a domain, but not in its parts
    TOO_LARGE = 13  # more pods than the search was given room for


#: What a code means, as part of a sentence.
TOPOLOGY_FAILURE_TEXTS = {
    TopologyFailure.NONE: "it fits",
    TopologyFailure.NO_LEVEL: "it asks for no level",
    TopologyFailure.LEVEL_UNKNOWN: "the topology has no such level",
    TopologyFailure.SLICE_LEVEL_UNKNOWN: "the topology has no such level for its slices",
    TopologyFailure.SLICE_SIZE: "its slices have no size, or not one that divides the slices around them",
    TopologyFailure.SLICE_ABOVE: "its slices are at a wider level than its pods",
    TopologyFailure.UNEVEN: "its pods are not a whole number of slices",
    TopologyFailure.NO_DOMAINS: "no node is up and has the labels of the topology",
    TopologyFailure.LACKS_ROOM: "no domain has room for all of its slices",
    TopologyFailure.LACKS_LEADER: "no domain has room for its workers and their leader",
    TopologyFailure.STALE: "its pods are in a domain that no longer exists",
    TopologyFailure.NO_REPLACEMENT: "none of its pods was on the failed node",
    TopologyFailure.UNSETTLED: "a slice fits in a domain, but not in the parts of it",
    TopologyFailure.TOO_LARGE: "it has more pods than can be placed at once",
}
