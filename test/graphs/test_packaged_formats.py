"""Packages of AOTInductor of programs in number formats."""

import new_process
import pytest
import torch
from torch import nn
from torch.export.pt2_archive._package import AOTICompiledModel

D = torch.posit16es2
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated", "ignore::DeprecationWarning", "ignore::FutureWarning")  # PyTorch's own

LOADS = """
import sys, torch
file = sys.argv[1]
run = torch._inductor.aoti_load_package(open(file, "rb") if sys.argv[2] == "open" else file)
import torch_dtypes
x = torch.linspace(-2, 2, 6).to(torch.posit16es2)
print(run(x).tolist(), run(torch_dtypes.codes(x)).dtype)
try:
    run(x.to(torch.posit16es1))
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""


class Scaled(nn.Module):
    def forward(self, x):
        return (x * 1.5).tanh() + 1


@pytest.mark.slow  # the C++ compiler takes some 15 seconds
def test_a_package_in_another_process(tmp_path):
    x, file = torch.linspace(-2, 2, 6).to(D), str(tmp_path / "scaled.pt2")
    size = torch.export.Dim("size", min=2)
    program = torch.export.export(Scaled(), (x,), dynamic_shapes={"x": {0: size}})
    torch._inductor.aoti_compile_and_package(program, package_path=file)
    for way in ("path", "open"):
        done = new_process.run("-W", "ignore", "-c", LOADS, file, way)
        values, error = done.stdout.splitlines()
        assert values == f"{Scaled()(x).tolist()} torch.posit16es2"
        assert "expected a tensor of torch.posit16es2, or its codes in torch.int16, but got one of torch.posit16es1" in error


class Seen(nn.Module):
    def forward(self, x):
        return x * 2, x[1:]


def test_views_of_arguments_are_refused(tmp_path):
    program = torch.export.export(Seen(), (torch.ones(3, dtype=D),))
    with pytest.raises(NotImplementedError, match=r"expected a program whose results are new .*, but got one that returns its argument x, or"):
        torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "seen.pt2"))


def test_packages_of_stock_programs_take_no_tensor_of_ours():
    """Compiled code would make a view of one without its format, which ends the process."""
    with pytest.raises(TypeError, match=r"expected tensors of stock dtypes for a package of a stock program, but got torch\.posit16es2"):
        AOTICompiledModel(None)(torch.ones(3, dtype=D))
