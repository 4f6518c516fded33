"""Modules that moved are importable by their old names for one release, with a warning."""

import importlib
import sys
import warnings

import pytest

import torch_dtypes
from torch_dtypes.host import old_paths


@pytest.fixture
def forget_modules():
    """Remove the modules with old names, so that each test imports them first."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.removeprefix("torch_dtypes.").split(".")[0] in old_paths.list_names():
            del sys.modules[name]


@pytest.mark.parametrize("old", old_paths.list_names())
def test_an_old_name_gives_the_module(old, forget_modules):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = importlib.import_module(f"torch_dtypes.{old}")
    new = module.__spec__.name
    assert module is sys.modules[new] and new != f"torch_dtypes.{old}"
    messages = [str(w.message) for w in caught if w.category is DeprecationWarning]
    in_files = old in ("_serialization", "quantization.block_tensors")
    assert any(f"torch_dtypes.{old} is {new}" in m for m in messages) != in_files


def test_modules_below_an_old_package(forget_modules):
    with pytest.warns(DeprecationWarning, match=r"torch_dtypes\.training.* is torch_dtypes"):
        from torch_dtypes.training.data import load_dataset
    assert load_dataset is torch_dtypes.workbench.training.data.load_dataset


def test_the_old_module_formats_is_a_package():
    assert torch_dtypes.formats.format_of is torch_dtypes.format_of
    assert "is_format_dtype" in dir(torch_dtypes.formats)


def test_no_module_of_a_name_that_never_was():
    with pytest.raises(ModuleNotFoundError, match=r"torch_dtypes\.nothing"):
        importlib.import_module("torch_dtypes.nothing")
