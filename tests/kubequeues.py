"""One queue with quota, as Kueue's manifests write it: what live tests are about is rarely the queue.

Must not know: who reads it.
"""

from __future__ import annotations


def one_queue(gpus: object, *more: str) -> str:
    """A queue `team` in the namespace `default` with so many GPUs; `more` lines of its ClusterQueue's spec."""
    lines = "".join(f"  {line}\n" for line in more)
    return f"""\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {{name: any}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {{name: q}}
spec:
  namespaceSelector: {{}}
{lines}\
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: any
      resources: [{{name: cpu, nominalQuota: 1000}}, {{name: nvidia.com/gpu, nominalQuota: {gpus}}}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {{name: team, namespace: default}}
spec: {{clusterQueue: q}}
"""
