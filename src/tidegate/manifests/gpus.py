"""The GPUs that a pod requests, of any vendor: whole devices, MIG slices, KAI's fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from tidegate.config.messages import did_you_mean
from tidegate.manifests import label_names
from tidegate.manifests.field_reader import Item
from tidegate.manifests.quantity import Amounts, counted
from tidegate.model.hardware import is_device
from tidegate.model.problem import found_text
from tidegate.model.struct import Resources, resources
from tidegate.model.units import WHOLE_MILLI, UnitError, parse_quantity
from tidegate.model.work import GpuRequest, Share

NVIDIA = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"

#: MIG profiles of the GPUs that there are (NVIDIA's user guide and mig-parted): GB of memory by compute slices.
_PROFILES_GB = {
    1: (5, 6, 10, 12, 18, 20, 23, 24, 34, 35, 36, 45, 47, 67, 70),
    2: (10, 12, 20, 24, 35, 36, 45, 47, 48, 67, 70),
    3: (20, 40, 47, 48, 71, 72, 90, 93, 135, 139),
    4: (20, 24, 40, 47, 48, 71, 72, 90, 93, 96, 135),
    7: (40, 80, 94, 96, 141, 144, 180, 186, 269, 278),
}
_WITH_MEDIA = ("1g.5gb", "1g.6gb", "1g.10gb", "1g.12gb", "1g.18gb", "1g.23gb", "1g.34gb", "1g.35gb", "2g.12gb")
PROFILES = frozenset(f"{slices}g.{size}gb" for slices, sizes in _PROFILES_GB.items() for size in sizes) | frozenset(
    f"{profile}+me" for profile in _WITH_MEDIA
)


class Devices(NamedTuple):
    """The GPUs of a pod, and its other requests."""

    gpu: GpuRequest
    rest: Amounts


def read_devices(amounts: Amounts, spec: Item, meta: Item) -> Devices:
    """Split the GPUs from the other requests of a pod; fractions are in its annotations."""
    asked = {name: amount for name, amount in amounts.items() if amount and (is_device(name) or name.startswith(MIG))}
    rest = {name: amount for name, amount in amounts.items() if name not in asked}
    fraction = _fraction(meta)
    kinds = [*asked, *([label_names.GPU_FRACTION] if fraction else [])]
    if len(kinds) > 1:
        listed = " and ".join(kinds)
        spec.report("containers", found=f"GPUs of two kinds in one pod are not supported: {listed}", hint="ask for one")
    if fraction is not None:
        return Devices(fraction, rest)
    if not asked:
        return Devices(GpuRequest(), rest)
    name, amount = next(iter(asked.items()))
    if amount.denominator != 1:
        spec.report("containers", expected=f"whole devices of {name}", found=f"{float(amount):g}")
    count = int(amount)
    if not name.startswith(MIG):
        return Devices(GpuRequest(share=Share.WHOLE, count=count), rest)
    return Devices(GpuRequest(share=Share.MIG, count=count, profile=_profile(name, spec)), rest)


def _profile(resource: str, spec: Item) -> str:
    """The MIG profile of a resource, whose name writes the + of `+me` as a point."""
    written = resource.removeprefix(MIG)
    profile = written.replace(".me", "+me") if written.endswith(".me") else written
    if profile not in PROFILES:
        hint = did_you_mean(profile, PROFILES)
        spec.report("containers", expected="a MIG profile such as nvidia.com/mig-1g.10gb", found=resource, hint=hint)
    return profile


def _fraction(meta: Item) -> GpuRequest | None:
    """A part of a device, by share or by memory, as KAI's annotations have it."""
    annotations, inner = meta.pairs("annotations"), meta.mapping("annotations")
    memory, share = annotations.get(label_names.GPU_MEMORY), annotations.get(label_names.GPU_FRACTION)
    if share is not None:
        milli = _milli(share)
        if milli is None:
            expected = 'a number above 0 and below 1 such as "0.25"'
            inner.report(label_names.GPU_FRACTION, expected=expected, found=found_text(share))
            return None
        return GpuRequest(share=Share.FRACTION, count=1, milli=milli)
    if memory is not None:
        if not (memory.isdecimal() and int(memory[:9]) > 0):
            inner.report(label_names.GPU_MEMORY, expected='MiB of GPU memory such as "4000"', found=found_text(memory))
            return None
        return GpuRequest(share=Share.FRACTION, count=1, milli=1, memory_mib=int(memory[:9]))
    return None


def _milli(written: str) -> int | None:
    try:
        milli = parse_quantity(written) * WHOLE_MILLI
    except UnitError:
        return None
    return round(milli) if 1 <= milli < WHOLE_MILLI else None


def charge_in_gpus(gpu: GpuRequest, counted_amounts: Amounts) -> Resources:
    """What quota counts where GPUs are counted in thousandths (KAI), whatever their resource is called."""
    rest = {name: counted(name, value) for name, value in counted_amounts.items() if not _is_gpu(name)}
    slices = Fraction(gpu.profile.partition("g.")[0] or 1) if gpu.profile[:1].isdecimal() else Fraction(1)
    milli = gpu.milli if gpu.share is Share.FRACTION else WHOLE_MILLI
    return resources({**rest, "gpu": int(gpu.count * milli * slices)})


def _is_gpu(resource: str) -> bool:
    return is_device(resource) or resource.startswith(MIG)
