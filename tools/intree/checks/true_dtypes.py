#!/usr/bin/env python3
"""Checks abilities of a PyTorch with the dtypes in its own list that no wheel has.

They are C++ that names the dtypes, options that carry them, and scripts with them as constants.

PYTHONPATH=SOURCE python tools/intree/checks/true_dtypes.py SOURCE BUILD # the headers of the tree
and of its build; compiles for a minute
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch
from first_tensor import report

CPP = """
#include <torch/extension.h>
#include <ATen/Dispatch_v2.h>

torch::Tensor ones() { return torch::ones({2}, at::kPosit16es2); }
torch::Tensor like(torch::Tensor x) { return torch::full({2}, 1.5, x.options()); }
bool is_one(torch::Tensor x) {
  const auto meta = caffe2::TypeMeta::Make<c10::posit16es2>();
  return x.scalar_type() == at::kPosit16es2 && x.dtype() == meta;
}

// Reads and writes elements as a C++ type, of any of the formats.
torch::Tensor twice(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_V2(x.scalar_type(), "twice", AT_WRAP([&] {
    const auto* from = x.const_data_ptr<scalar_t>();
    auto* to = y.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = static_cast<scalar_t>(double(from[i]) * 2);
  }), AT_FORMAT_SCALAR_TYPES);
  return y;
}
"""


def extension(source: Path, build: Path, folder: str):
    from torch.utils.cpp_extension import load_inline

    includes = [
        source,
        source / "aten/src",
        source / "torch/csrc/api/include",
        build,
        build / "aten/src",
        build / "caffe2/aten/src",
    ]
    return load_inline(
        "formats_in_the_list",
        CPP,
        functions=["ones", "like", "is_one", "twice"],
        extra_include_paths=[str(path) for path in includes],
        extra_cflags=["-O1"],
        build_directory=folder,
    )


def checks_of(module):
    def cpp_names_a_dtype():
        assert module.ones().dtype is torch.posit16es2 and module.ones().tolist() == [1.0, 1.0]

    def options_carry_it_into_factories():
        assert module.like(torch.zeros(1, dtype=torch.q43)).dtype is torch.q43

    def a_tensor_says_its_type():
        assert module.is_one(torch.zeros(1, dtype=torch.posit16es2)) and not module.is_one(
            torch.zeros(1, dtype=torch.q43)
        )

    def elements_are_dispatched_on():
        for dtype in (torch.posit8es1, torch.posit16es2, torch.tf32):
            assert module.twice(torch.tensor([1.5, -0.25], dtype=dtype)).tolist() == [3.0, -0.5]

    return [
        cpp_names_a_dtype,
        options_carry_it_into_factories,
        a_tensor_says_its_type,
        elements_are_dispatched_on,
    ]


def a_script_refuses_it():
    makes = "def f(n: int):\n  return torch.zeros([n], dtype=torch.posit16es2)\n"
    compares = "def f(x):\n  return x.dtype == torch.posit16es2\n"
    for text, value in ((makes, 2), (compares, torch.zeros(1, dtype=torch.posit16es2))):
        unit = torch.jit.CompilationUnit(text)
        try:
            unit.f(value)
        except NotImplementedError as error:
            assert "expected stock dtypes in a call of TorchScript" in str(error)
        else:
            raise AssertionError(f"expected an error of the script {text!r}, but got none")
    assert not unit.f(torch.zeros(1))


def collections_sort_by_it():
    assert torch.zeros(1, dtype=torch.posit16es2).type(torch.float32).dtype is torch.float32
    grouped = torch._utils._take_tensors(
        [torch.zeros(2, dtype=torch.q43), torch.zeros(2, dtype=torch.q52)], 1024
    )
    assert sorted(str(group[0].dtype) for group in grouped) == ["torch.q43", "torch.q52"]


def the_profiler_names_it():
    with torch.autograd.profiler.profile(record_shapes=True) as recorded:
        torch.zeros(2, dtype=torch.posit16es2).add_(1)
    assert any(event.name == "aten::add_" for event in recorded.function_events)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("build", type=Path)
    options = parser.parse_args()
    python = [
        a_script_refuses_it,
        collections_sort_by_it,
        the_profiler_names_it,
    ]
    failed = report(python)
    with tempfile.TemporaryDirectory() as folder:
        return failed | report(
            checks_of(extension(options.source.resolve(), options.build.resolve(), folder))
        )


if __name__ == "__main__":
    sys.exit(main())
