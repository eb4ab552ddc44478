"""Labels and annotations that queueing systems know, and how each is treated here.

Unknown ones with a prefix of these systems are reported; all others are left alone.
"""

from __future__ import annotations

from tidegate.config.messages import did_you_mean
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import FieldRule, FieldUse, Unsupported

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
MAX_EXECUTION = "kueue.x-k8s.io/max-exec-time-seconds"
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
GROUP = "kueue.x-k8s.io/pod-group-name"
GROUP_TOTAL = "kueue.x-k8s.io/pod-group-total-count"
GROUP_FAST = "kueue.x-k8s.io/pod-group-fast-admission"
GROUP_WORKLOAD = "kueue.x-k8s.io/is-group-workload"
ROLE = "kueue.x-k8s.io/role-hash"
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
GATED_BY = "kueue.x-k8s.io/admission-gated-by"
PRIORITY_BOOST = "kueue.x-k8s.io/priority-boost"
ALLOWED_FLAVORS = "kueue.x-k8s.io/workload-allowed-resource-flavors"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
SLICE_LEVEL = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
SLICES = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
POD_SET_GROUP = "kueue.x-k8s.io/podset-group-name"

KAI_QUEUES = ("kai.scheduler/queue", "runai/queue")
GPU_FRACTION = "gpu-fraction"
GPU_MEMORY = "gpu-memory"
GPU_FRACTION_DEVICES = "gpu-fraction-num-devices"
VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
YUNIKORN_QUEUES = ("yunikorn.apache.org/queue", "queue")

RUNTIME = "tidegate.io/runtime"
SUBMIT = "tidegate.io/submit"
KIND = "tidegate.io/kind"
IGNORE = "tidegate.io/ignore"
RECOVERY = "tidegate.io/recovery"  # when work loses a pod or a node: gang or pods
HANDOVER_NOTE = "tidegate.io/standing"  # the hand-over note for the next leader

_READ = (
    QUEUE, PRIORITY, MIN_PARALLELISM, GROUP, GROUP_TOTAL, GROUP_FAST, GROUP_WORKLOAD, ROLE, REPLACES, GATED_BY,
    REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, SLICE_SIZE, SLICES, POD_SET_GROUP, *KAI_QUEUES, GPU_FRACTION,
    GPU_MEMORY, VOLCANO_QUEUE, RUNTIME, SUBMIT, KIND, IGNORE, RECOVERY,
)  # fmt: skip
_IDLE = (
    "kueue.x-k8s.io/component-workload-index", "kueue.x-k8s.io/elastic-job",
    "kueue.x-k8s.io/job-completions-equal-parallelism", "kueue.x-k8s.io/job-owner-gvk",
    "kueue.x-k8s.io/job-owner-name", "kueue.x-k8s.io/job-uid", "kueue.x-k8s.io/managed",
    "kueue.x-k8s.io/pod-group-pod-index", "kueue.x-k8s.io/pod-group-pod-index-label",
    "kueue.x-k8s.io/pod-group-serving", "kueue.x-k8s.io/pod-index-offset", "kueue.x-k8s.io/pod-suspending-parent",
    "kueue.x-k8s.io/podset", "kueue.x-k8s.io/raycluster-generation", "kueue.x-k8s.io/raycluster-podset-replica-sizes",
    "kueue.x-k8s.io/retriable-in-group", "kueue.x-k8s.io/safe-to-forcefully-delete", "kueue.x-k8s.io/stopping",
    "kueue.x-k8s.io/workload", "kueue.x-k8s.io/workload-slice-name",
    "kueue.x-k8s.io/local-queue-name", "kueue.x-k8s.io/cluster-queue-name", "kueue.x-k8s.io/multikueue-origin",
    "kueue.x-k8s.io/multikueue-origin-uid", "kueue.x-k8s.io/multikueue-worker-workload-pod", "kueue.x-k8s.io/tas",
    "kai.scheduler/node-pool", HANDOVER_NOTE,
)  # fmt: skip
_UNMODELLED = {
    PRIORITY_BOOST: "Kueue's gate PriorityBoost is off by default",
    ALLOWED_FLAVORS: "Kueue's gate ConcurrentAdmission is off by default",
    "kueue.x-k8s.io/concurrent-admission-parent": "Kueue's gate ConcurrentAdmission is off by default",
    MAX_EXECUTION: "work is not ended for its time",
    "kueue.x-k8s.io/prebuilt-workload-name": "the pod sets are made from the job itself",
    "kai.scheduler/preemptibility": "any admitted work may be preempted, as its queue's rules say",
}
_REFUSED = {
    GPU_FRACTION_DEVICES: Unsupported(
        "a fraction of several devices", "ask for a fraction of one device, or for whole ones"
    ),
    "alpha.jobset.sigs.k8s.io/exclusive-topology": Unsupported(
        "one job alone in a topology domain", f"use {REQUIRED}, or leave it out"
    ),
    "leaderworkerset.sigs.k8s.io/exclusive-topology": Unsupported(
        "one group alone in a topology domain", f"use {REQUIRED}, or leave it out"
    ),
}

#: How each known label or annotation is treated.
KNOWN_LABELS = {
    **{word: FieldRule(FieldUse.READ) for word in _READ},
    **{word: FieldRule(FieldUse.IDLE) for word in _IDLE},
    **{word: FieldRule(FieldUse.UNMODELLED, why) for word, why in _UNMODELLED.items()},
    **{word: FieldRule(FieldUse.REFUSED, no.why, no.remedy) for word, no in _REFUSED.items()},
}

_OURS = ("kueue.x-k8s.io/", "tidegate.io/", "kai.scheduler/")


def check_labels(meta: Item, gates: frozenset[str] = frozenset()) -> None:
    """Name labels and annotations that are refused, not modelled, or probably mistyped."""
    for key in ("labels", "annotations"):
        found = meta.get(key)
        for word, value in found.items() if isinstance(found, dict) else ():
            _review_word(meta.mapping(key), word, value, gates)


def _review_word(pairs: Item, word: str, value: object, gates: frozenset[str]) -> None:
    known = KNOWN_LABELS.get(word)
    if known is None:
        if word.startswith(_OURS):
            pairs.warn(
                word, "is not a label or annotation of that system: it has no effect", did_you_mean(word, KNOWN_LABELS)
            )
    elif known.use is FieldUse.REFUSED and value:
        pairs.report(word, found=f"is not supported: {known.why}", hint=known.remedy)
    elif known.use is FieldUse.UNMODELLED and value and not any(f" {gate} " in f"{known.why} " for gate in gates):
        pairs.warn(word, f"has no effect here: {known.why}")
