"""Exceptions have one base and end in Error."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import tidegate.config
import tidegate.manifests
import tidegate.model
import tidegate.sources
from tidegate.model.errors import TidegateError


@pytest.mark.parametrize("package", [tidegate.config, tidegate.manifests, tidegate.model, tidegate.sources])
def test_every_exception_derives_from_one_base_and_ends_in_error(package):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, BaseException) and kind.__module__ == found.name:
                assert issubclass(kind, TidegateError), name
                assert name.endswith("Error"), name
