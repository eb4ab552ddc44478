"""A real Kubernetes control plane for tests and benchmarks, as processes on loopback that end with their parent.

from kubebench import Plane, Options
with Plane(Options()) as plane:
    plane.admin.post("/api/v1/nodes", node("n1", gpus=8))
"""

from __future__ import annotations

from kubebench.api import Api, ApiError
from kubebench.objects import job, node, pod
from kubebench.plane import Options, Plane
from kubebench.programs import Unbuildable, find_programs
from kubebench.users import User, grant

__all__ = [
    "Api",
    "ApiError",
    "Options",
    "Plane",
    "Unbuildable",
    "User",
    "find_programs",
    "grant",
    "job",
    "node",
    "pod",
]
