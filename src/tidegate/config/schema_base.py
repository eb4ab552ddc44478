"""Types that the mappings of `tidegate.yaml` share: names, texts, labels, taints."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field

from tidegate.config.quantities import Amount
from tidegate.model.hardware import TaintEffect

#: The longest text in a free field.
LONGEST_FIELD = 253

#: In Python, `$` alone would also match before a newline at the end.
END = r"$(?!\n)"

Text = Annotated[str, Meta(max_length=LONGEST_FIELD)]
NonEmpty = Annotated[str, Meta(min_length=1, max_length=LONGEST_FIELD, extra={"expected": "text"})]
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?" + END,
        extra={"expected": "a name of letters, digits, dots, dashes, slashes and underscores"},
    ),
]
Seed = Annotated[int, Meta(ge=0, le=2**53)]
LabelKey = Annotated[str, Meta(pattern=r"^[A-Za-z0-9./_-]{1,253}" + END, extra={"expected": "a label's name"})]
ResourceName = Annotated[
    str,
    Meta(
        pattern=r"^(?!(cpu|memory|pods|nvidia\.com/gpu)$)[A-Za-z0-9./_-]{1,253}" + END,
        extra={"expected": "a resource other than cpu, memory, pods and GPUs, which have keys of their own"},
    ),
]
Labels = dict[LabelKey, Text]
Others = dict[ResourceName, Annotated[int, Meta(ge=0, le=1_000_000_000)]]


class ConfigEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping in the file."""

    #: Keys that are refused by name, and what to write instead.
    refused: ClassVar[Mapping[str, str]] = {}


def amount(kind: type[Amount], value: int = 0) -> Any:
    """The default of a field: an amount, zero unless it is given."""
    return field(default_factory=partial(kind, value))


class TaintEntry(ConfigEntry, frozen=True):
    """A mark that keeps pods away unless they tolerate it."""

    key: Annotated[NonEmpty, Meta(description="The taint's key.")]
    value: Annotated[Text, Meta(description="Its value.")] = ""
    effect: Annotated[TaintEffect, Meta(description="What it does to a pod that does not tolerate it.")] = (
        TaintEffect.NO_SCHEDULE
    )


class TolerationOperator(StrEnum):
    """How a toleration compares, in Kubernetes' words."""

    EQUAL = "Equal"
    EXISTS = "Exists"


class TolerationEntry(ConfigEntry, frozen=True):
    """A taint that a pod tolerates."""

    key: Annotated[Text, Meta(description="The taint's key; empty with Exists: any.")] = ""
    operator: Annotated[TolerationOperator, Meta(description="Equal: the value must be equal; Exists: any value.")] = (
        TolerationOperator.EQUAL
    )
    value: Annotated[Text, Meta(description="The taint's value.")] = ""
    effect: Annotated[
        Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"],
        Meta(description="The taint's effect; empty: any."),
    ] = ""
