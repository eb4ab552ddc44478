"""Kernels call each other by name: no two may share one."""

from __future__ import annotations

import pytest

from tidegate.engine.kernels.quota import available
from tidegate.jit.registry import inlined, kernel


@pytest.mark.parametrize("register", [kernel, inlined])
def test_two_kernels_of_one_name_are_refused(register):
    def available() -> int:
        return 0

    with pytest.raises(ValueError, match=r"kernels are called available: in tidegate\.\S+quota and \S*test_registry"):
        register(available)


def test_the_first_of_them_stays():
    from tidegate.jit.registry import active, kernels_as

    with kernels_as(compiled=False):
        assert active(available) is available
