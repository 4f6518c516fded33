"""``torch-dtypes run``: scripts under a setting, and the digits that their runs keep."""

import math
import subprocess
import sys
from fractions import Fraction

import new_process
import pytest
import torch
from command_line import command

import torch_dtypes
from torch_dtypes.workbench.scripts.printed import compare_outputs


@pytest.fixture(autouse=True)
def restore(monkeypatch):
    """Give this process its own script back."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))


@pytest.fixture
def run(tmp_path):
    def run(text, *options, args=()):
        script = tmp_path / "script.py"
        script.write_text(text)
        return command("run", *options, script, *args)

    return run


QUOTIENT = "import torch; print((torch.tensor([1.0]) / torch.tensor([3.0])).item().hex())"


@pytest.mark.parametrize(
    ("mode", "ulps"), [("toward_zero", math.floor), ("up", math.ceil), ("2", math.ceil)]
)
def test_rounding_is_that_of_float32_operations(run, mode, ulps):
    result = run(QUOTIENT, "--rounding", mode)
    # 1/3 has its first bit at 2^-2, so that the last of 24 is at 2^-25.
    expected = float(Fraction(ulps(Fraction(1, 3) * 2**25), 2**25))
    assert result.exit_code == 0 and float.fromhex(result.output) == expected


SUMS = """
import torch
x = torch.tensor([2.0**24, 1.0, 1.0])
print(x.sum().item(), (x @ torch.ones(3)).item())
"""


@pytest.mark.parametrize(
    ("policy", "total"),
    [
        ("format", 2.0**24),  # each 1 alone is half of the last place
        ("exact", 2.0**24 + 2),
        ("format(order=pairwise)", 2.0**24 + 2),
        ("block(terms=4, extra_bits=1)", 2.0**24 + 2),
    ],
)
def test_accumulate_is_that_of_float32_sums(run, policy, total):
    assert run(SUMS, "--accumulate", policy).output.split() == [str(total)] * 2


def test_both_together(run):
    """The steps of the policy round by the mode: up, each 1 is the next number."""
    result = run(SUMS, "--accumulate", "format", "--rounding", "up")
    assert result.output.split() == [str(2.0**24 + 4)] * 2


@pytest.mark.parametrize("name", ["q43", "posit16es2", "e6m4"])
def test_dtype_is_the_default(run, name):
    before = torch.get_default_dtype()
    result = run(
        "import torch; x = torch.tensor([1.0, 3.0]); print((x / 3)[0].item(), x.dtype)",
        *("--dtype", name, "--rounding", "down"),
    )
    x = torch.tensor([1.0, 3.0]).to(torch_dtypes.dtype(name))
    with torch_dtypes.rounding("down"):
        expected = (x / 3)[0].item()
    assert result.output.split() == [str(expected), f"torch.{name}"]
    assert torch.get_default_dtype() is before


DRAWS = """
import torch
torch.manual_seed(1)
print((torch.full((64,), 0.1) * 0.3).sum().item())
print(torch.rand(1).item())
"""


@pytest.mark.parametrize("option", [("--fuzzy", "stochastic"), ("--dtype", "q52_stochastic")])
def test_seeds_change_rounding_alone(run, option):
    runs = [run(DRAWS, *option, "--seed", seed).output.split() for seed in (1, 1, 2, 3)]
    assert runs[0] == runs[1] and len({total for total, _ in runs}) > 1
    if option[0] == "--fuzzy":  # the other rounds its draws, too
        assert len({drawn for _, drawn in runs}) == 1


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (("--help", "fail"), 1),
        pytest.param(("-x",), 0, marks=pytest.mark.whole),
        pytest.param(("7",), 7, marks=pytest.mark.whole),
    ],
)
def test_a_script_runs_as_python_runs_it(args, status, tmp_path):
    """Its arguments, its name, its folder, its warnings, its traceback and its status."""
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    script = tmp_path / "script.py"
    script.write_text("""
import sys, warnings, beside
print(sys.argv[1:], __name__, __file__ == sys.path[0] + "/script.py", beside.NAME)
print(sys.modules["__main__"].__dict__ is globals())
warnings.warn("its own")
def fail():
    raise ValueError("wrong")
if "fail" in sys.argv: fail()
sys.exit(7 if "7" in sys.argv else None)
""")
    found = new_process.run("-m", "torch_dtypes", "run", "--dtype", "q43", script, *args)
    plain = subprocess.run([sys.executable, script, *args], capture_output=True, text=True)
    assert found.returncode == plain.returncode == status
    assert (found.stdout, found.stderr) == (plain.stdout, plain.stderr)


def test_its_exit_status_is_the_script_s(run):
    assert run("import sys; sys.exit(7)", "--dtype", "q43").exit_code == 7
    assert run("print(1", "--dtype", "q43").stderr.endswith("SyntaxError: '(' was never closed\n")


def test_a_setting_that_changes_nothing_says_so(run):
    said = "expected PyTorch operations that round in"
    assert said in run("print(1)", "--fuzzy", "stochastic").stderr
    assert said in run("print(1)", "--dtype", "q43", "--rounding", "up").stderr
    assert said not in run(QUOTIENT, "--rounding", "up").stderr


NETWORK = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)
    def forward(self, x): return self.inner(x).relu()
net, loss = Net(), nn.MSELoss()
loss(net(torch.randn(8, 4)), torch.ones(8, 3)).backward()
print(net.inner.weight.grad.abs().sum().item())
"""


def test_observe_names_layers_of_networks_that_the_script_makes(run, tmp_path):
    page = tmp_path / "page.html"
    result = run(NETWORK, "--dtype", "q43", "--observe", page)
    assert result.exit_code == 0
    assert result.stdout == run(NETWORK, "--dtype", "q43").stdout
    text = page.read_text()
    for layer in ("Net.inner", "MSELoss"):
        assert f">{layer}<" in text
    assert "MSELoss, backward: no number left the range of q43" in result.stderr
    assert not torch.nn.modules.module._global_forward_pre_hooks


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "expected --dtype, --fuzzy, --rounding, --accumulate or --observe"),
        (("--fuzzy", "up"), "use --rounding up"),
        (("--fuzzy", "stochastic", "--rounding", "up"), "but got both: leave one out"),
        (("--fuzzy", "up_down", "--dtype", "q43"), "write --rounding up_down"),
        (("--rounding", "12"), "expected a rounding mode"),
        (("--dtype", "q433"), "nearest names are 'q43'"),
        (("--dtype", "float64"), "that is a stock dtype; 'bf16', 'fp16', 'fp32' and 'fp64'"),
        (("--accumulate", "quire"), "expected an accumulation policy"),
        (("--accumulate", "nvidia-h100"), "but got e8m23"),
        (("--dtype", "q43", "--repeats", "3"), "expected random rounding with --repeats"),
        (("--fuzzy", "up_down", "--repeats", "3", "--observe", "page"), "leave one out"),
        (("--dtype", "q43", "--observe", "/none/page.html"), "cannot write /none/page.html: No"),
    ],
)
def test_options_are_checked_before_the_script(run, options, words):
    result = run("print('ran')", *options)
    assert result.exit_code == 2
    assert words in result.stderr and "ran" not in result.stdout


def test_digits_of_printed_numbers():
    found = compare_outputs(
        [
            "epoch 1 of conv2: loss  9.501 (nan)\ndone\nlr 1e-3\nseen 10",
            "epoch 1 of conv2: loss 10.499 (nan)\ndone\nlr 1e-3\nseen 12",
            "epoch 1 of conv2: loss 10.000 (nan)\nover\nlr 1e-3\nseen 11\nmore",
        ]
    )
    rows = [(n.line, n.text, n.are_all) for n in found.numbers]
    assert rows == [(1, "of conv2: loss", False), (3, "lr", True), (4, "seen", False)]
    assert found.differing == 2  # another word, and a line of one run
    expected = (-math.log10(0.0499), 1, -math.log10(1 / 11))
    for number, digits in zip(found.numbers, expected, strict=True):
        assert number.digits == pytest.approx(digits)
    assert found.estimate.probability == pytest.approx(0.05 ** (1 / 3))


def test_runs_without_numbers():
    assert compare_outputs(["a 3\n", "a 3\n"]).numbers == []


REPEATED = """
import random, sys, numpy, torch
print(random.random(), numpy.random.rand(), torch.rand(1).item())
torch.manual_seed(0)
total = torch.zeros(())
for number in torch.rand(300): total = total + number / 3
print("total", total.item())
print(repr(sys.stdin.read()))
"""


def test_repeats_count_digits(tmp_path):
    """Runs differ by rounding alone: the script's own draws are the same."""
    (tmp_path / "script.py").write_text(REPEATED)
    options = ("run", "--fuzzy", "stochastic", "--repeats", "3", tmp_path / "script.py")
    result = new_process.run("-m", "torch_dtypes", *options, check=True)
    output, _, table = result.stdout.partition("\n\n")
    assert len(output.splitlines()) == 3 and output.endswith("''")
    first, *others = [line.split() for line in table.splitlines() if line[:1].isdigit()]
    assert [row[-1] for row in (first, *others[:2])] == ["(all)"] * 3
    assert others[2][:2] == ["2", "total"] and 4 < float(others[2][-1]) < 7.5
    assert f"probability {0.05 ** (1 / 3):.2f}" in table


@pytest.mark.whole
@pytest.mark.parametrize(("end", "status"), [("sys.exit('no')", 1), ("os.abort()", 134)])
def test_a_run_that_fails_ends_all(tmp_path, end, status):
    (tmp_path / "script.py").write_text(f"import os, sys, torch\nprint(1.5, flush=True)\n{end}\n")
    options = ("run", "--fuzzy", "stochastic", "--repeats", "4", tmp_path / "script.py")
    result = new_process.run("-m", "torch_dtypes", *options)
    assert result.returncode == status and result.stdout == "1.5\n"
    assert ("no" in result.stderr) == (status == 1)
