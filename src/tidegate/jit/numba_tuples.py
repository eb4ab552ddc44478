"""NamedTuples of arrays as numba arguments that are passed by pointer, not field by field.

The state is a few hundred numbers and addresses. By value, each call between kernels would spell all of them out, and
most of the time that kernels take to compile would go into that. So a NamedTuple of arrays that comes from Python is
put on the stack once, and kernels hand on its address. It never changes during a call, and the compiler is told so.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

_NAMED = (types.NamedTuple, types.NamedUniTuple)


class ByPointer(types.Type):
    """A NamedTuple on the stack."""

    def __init__(self, pointee: Any) -> None:
        self.pointee = pointee
        super().__init__(name=f"ByPointer({pointee})")

    @property
    def key(self) -> Any:
        """What distinguishes two of them: the fields too, which the name leaves out."""
        return self.pointee


@register_model(ByPointer)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: ByPointer) -> None:
        super().__init__(manager, kind, manager.lookup(kind.pointee).get_value_type().as_pointer())


_typeof_before = typeof_impl.dispatch(tuple)


@typeof_impl.register(tuple)
def _typeof_tuple(value: Any, context: Any) -> Any:
    """Type our NamedTuples with arrays as pointers; any other tuple as numba does."""
    found = _typeof_before(value, context)
    if not isinstance(found, _NAMED) or not type(value).__module__.startswith("tidegate."):
        return found
    inner = [each.pointee if isinstance(each, ByPointer) else each for each in found.types]
    whole = types.BaseTuple.from_types(inner, type(value))
    return ByPointer(whole) if _has_arrays(whole) else whole


def _has_arrays(kind: Any) -> bool:
    return isinstance(kind, types.Array) or (isinstance(kind, _NAMED) and any(map(_has_arrays, kind.types)))


@unbox(ByPointer)
def _unbox(kind: ByPointer, value: Any, context: Any) -> NativeValue:
    """Put a tuple from Python on the stack."""
    native = context.unbox(kind.pointee, value)
    where = cgutils.alloca_once_value(context.builder, native.value)
    return NativeValue(where, is_error=native.is_error, cleanup=native.cleanup)


@infer_getattr
class _Fields(AttributeTemplate):
    key = ByPointer

    def generic_resolve(self, kind: ByPointer, name: str) -> Any:  # type: ignore[override]  # numba's own is none
        """The type of a field; a NamedTuple in it goes by pointer too."""
        if name not in kind.pointee.fields:
            return None
        found = kind.pointee.types[kind.pointee.fields.index(name)]
        return ByPointer(found) if isinstance(found, _NAMED) and _has_arrays(found) else found


@lower_getattr_generic(ByPointer)
def _lower_field(_: Any, builder: Any, kind: ByPointer, where: Any, name: str) -> Any:
    at = kind.pointee.fields.index(name)
    found, field = kind.pointee.types[at], cgutils.gep_inbounds(builder, where, 0, at)
    if isinstance(found, _NAMED) and _has_arrays(found):
        return field
    loaded = builder.load(field)
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return loaded
