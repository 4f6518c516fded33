"""Measures the cost of the GPU's kernels, as ratios within one run.

Usage: `python benchmarks/gpu_speed.py memory|sums|products|training|peers`. It prints one line of
JSON for each measurement. `--device cpu` runs the same code on small tensors, as a test.
"""

import argparse
import json
import statistics
import time
from contextlib import nullcontext

import torch

import torch_dtypes
from torch_dtypes.workbench.bench.measuring import NotMeasuredError
from torch_dtypes.workbench.bench.peers import is_installed, module
from torch_dtypes.workbench.training.models import ResNet18

FORMATS = ["q43", "posit8es2", "posit16es2", "e5m5", "posit32es2"]
ROW = 10  # milliseconds of calls between two events, long beside the first call's launch


class Clock:
    """Measures medians of a call's milliseconds, on a GPU by CUDA's events after warming up."""

    def __init__(self, device):
        self.cuda = device == "cuda"

    def measure(self, call, calls):
        """Return the milliseconds of each call in a row of calls.

        With two events around one call, an idle GPU would wait for Python to launch it.
        """
        if not self.cuda:
            began = time.perf_counter()
            for _ in range(calls):
                call()
            return 1e3 * (time.perf_counter() - began) / calls
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / calls

    def __call__(self, call, repeats=15, warm=3):
        if not self.cuda:
            return statistics.median(self.measure(call, 1) for _ in range(3))
        for _ in range(warm):
            call()
        calls = max(1, min(100, round(ROW / self.measure(call, 1))))
        return statistics.median(self.measure(call, calls) for _ in range(repeats))


def allow_tf32(allowed):
    """Allow or forbid stock convolutions to drop bits of float32 operands.

    By default PyTorch allows it, and forbids it for matrix products. This uses the old switch,
    whose setting both old and new names read. Setting fp32_precision of convolutions and RNNs alone
    makes torch.backends.cudnn.flags raise, and any code that reads allow_tf32.
    """
    torch.backends.cudnn.allow_tf32 = allowed


def print_row(**row):
    print(
        json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}),
        flush=True,
    )


def memory(device, clock):
    """Measure casts and elementwise operators against a copy, by the fewest bytes that each must
    move.

    An operand has 256 MiB in every format, so that an H100's L2 (50 MB) keeps little of it.
    Operands are distinct, since one that occurs twice is fetched once. Bytes are random, since
    zeros are moved faster.
    """
    size = 1 << (28 if device == "cuda" else 14)
    source = torch.randint(0, 256, (size,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = 2 * size / clock(lambda: target.copy_(source)) / 1e6
    print_row(what="copy", gigabytes_a_second=copied)
    for name in FORMATS:
        dtype = getattr(torch, name)
        width = dtype.itemsize
        m = size // width
        values = torch.randn(m, device=device)
        x, y, z = values.to(dtype), *(torch.randn(m, device=device).to(dtype) for _ in range(2))
        calls = {
            "encode": (lambda v=values, d=dtype: v.to(d), 4 + width),
            "decode": (lambda x=x: x.float(), width + 4),
            "x + y": (lambda x=x, y=y: x + y, 3 * width),
            "x * y": (lambda x=x, y=y: x * y, 3 * width),
            "x / y": (lambda x=x, y=y: x / y, 3 * width),
            "x * 0.1": (lambda x=x: x * 0.1, 2 * width),
            "addcmul": (lambda x=x, y=y, z=z: torch.addcmul(x, y, z), 4 * width),
            "exp": (lambda x=x: x.exp(), 2 * width),
            "transposed + y": (
                lambda x=x, y=y: x.view(1 << 7, -1).t() + y.view(-1, 1 << 7),
                3 * width,
            ),
            "x + a row": (lambda x=x, y=y: x.view(-1, 1 << 10) + y[: 1 << 10], 2 * width),
        }
        for mode, names in (("", calls), (", stochastic", ("encode", "x + y", "x * y"))):
            with torch_dtypes.rounding("stochastic") if mode else nullcontext():
                for what in names:
                    call, moved = calls[what]
                    took = clock(call)
                    rate = moved * m / took / 1e6
                    print_row(
                        what=what + mode,
                        format=name,
                        milliseconds=took,
                        gigabytes_a_second=rate,
                        of_copy=rate / copied,
                    )
    m = size // 4
    values = torch.randn(m, device=device)
    for name in ("posit16es2", "q43"):
        took = clock(lambda name=name: torch_dtypes.chop(values, name))
        rate = 8 * m / took / 1e6
        print_row(
            what="chop",
            format=name,
            milliseconds=took,
            gigabytes_a_second=rate,
            of_copy=rate / copied,
        )


def sums(device, clock):
    """Measure dot products that round at every step, and exact ones."""
    small, large = (1024, 4096) if device == "cuda" else (24, 48)
    for name in ("posit16es2", "posit8es2", "posit8es0", "q43", "e5m5"):
        dtype = getattr(torch, name)
        for policy, options, n in (
            ("format", {}, large),
            ("format", {"accumulator": "fp32"}, large),
            ("format", {}, small),
            ("format", {"fused": True}, small),
            ("chunked(32)", {}, small),
            ("exact", {}, small),
        ):
            a, b = (
                torch.randn(n, n, device=device).to(dtype),
                torch.randn(n, n, device=device).to(dtype),
            )
            with torch_dtypes.accumulate(policy, **options):
                took = clock(lambda a=a, b=b: a @ b, repeats=5, warm=1)
            what = " ".join([policy, *(f"{k}={v}" for k, v in options.items())])
            print_row(
                what=what,
                format=name,
                size=n,
                milliseconds=took,
                tera_multiply_adds=n**3 / took / 1e9,
            )


def products(device, clock):
    """Measure matmul with the default policy, beside stock dtypes'."""
    n = 4096 if device == "cuda" else 64
    stock = {}

    def took_by(dtype):
        a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        return clock(lambda: a @ b)

    for name, dtype, precision in (
        ("bfloat16", torch.bfloat16, "highest"),
        ("float32", torch.float32, "highest"),
        ("tf32", torch.float32, "high"),
    ):
        torch.set_float32_matmul_precision(precision)
        stock[name] = took_by(dtype)
        print_row(
            what="matmul",
            format="float32 in TF32" if name == "tf32" else name,
            size=n,
            milliseconds=stock[name],
        )
    torch.set_float32_matmul_precision("highest")
    for name in FORMATS:
        took = took_by(getattr(torch, name))
        print_row(
            what="matmul",
            format=name,
            size=n,
            milliseconds=took,
            **{f"of_{base}": took / base_took for base, base_took in stock.items()},
        )


def lenet5():
    layers = torch.nn
    return layers.Sequential(
        layers.Conv2d(1, 6, 5, padding=2),
        layers.ReLU(),
        layers.MaxPool2d(2),
        layers.Conv2d(6, 16, 5),
        layers.ReLU(),
        layers.MaxPool2d(2),
        layers.Flatten(),
        layers.Linear(400, 120),
        layers.ReLU(),
        layers.Linear(120, 84),
        layers.ReLU(),
        layers.Linear(84, 10),
    )


def training(device, clock):
    """Measure steps of LeNet-5 at batch 256 and of ResNet-18 (images of 32 x 32) at batch 128.

    They are compared with float32's, whose convolutions run in float32 and, as by default, in TF32.
    posit16es2 has more bits than TF32. Where TF32 is allowed, its convolutions use float64, so it
    has no row there.
    """
    side = 32 if device == "cuda" else 8
    networks = {
        "LeNet-5": (lenet5, (256, 1, 28, 28)),
        "ResNet-18": (ResNet18, (128, 3, side, side)),
    }

    def step_of(network, shape, dtype):
        torch.manual_seed(0)
        net = network().to(dtype).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        batch = shape[0] if device == "cuda" else 2
        x, y = (
            torch.randn(batch, *shape[1:]).to(dtype).to(device),
            torch.randint(0, 10, (batch,)).to(device),
        )

        def step():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()

        return clock(step, repeats=20, warm=5)

    for what, network in networks.items():
        base = {}
        for precision in ("float32", "tf32"):
            allow_tf32(precision == "tf32")
            base[precision] = step_of(*network, torch.float32)
            print_row(
                what=f"{what} step",
                format="float32",
                convolutions=precision,
                milliseconds=base[precision],
            )
        for precision, names in (
            ("float32", ("q43", "posit8es2", "posit16es2")),
            ("tf32", ("q43", "posit8es2")),
        ):
            allow_tf32(precision == "tf32")
            for name in names if device == "cuda" else names[:1]:
                took = step_of(*network, getattr(torch, name))
                ratios = {f"of_{other}": took / of for other, of in base.items()}
                print_row(
                    what=f"{what} step",
                    format=name,
                    convolutions=precision,
                    milliseconds=took,
                    **ratios,
                )
        allow_tf32(False)


def peers(device, clock):
    """Measure how many times as fast this package is as qtorch and mptorch.

    Each runs only where it is installed and its kernels build.
    """
    size, n = (1 << 26, 1024) if device == "cuda" else (1 << 14, 24)
    values = torch.randn(size, device=device)
    a, b = (torch.randn(n, n, device=device).to(torch.q52) for _ in range(2))
    f, g = a.float(), b.float()

    def stepwise():
        with torch_dtypes.accumulate("format"):
            return a @ b

    works = [
        (
            "qtorch",
            "round to e5m2",
            lambda q: q.float_quantize(values, exp=5, man=2, rounding="nearest"),
            lambda: torch_dtypes.chop(values, "q52"),
        ),
        (
            "qtorch",
            "round to e5m2, stochastic",
            lambda q: q.float_quantize(values, exp=5, man=2, rounding="stochastic"),
            lambda: torch_dtypes.chop(values, "q52", "stochastic"),
        ),
        (
            "qtorch",
            "round to fixed7_8",
            lambda q: q.fixed_point_quantize(values, wl=16, fl=8, rounding="nearest"),
            lambda: torch_dtypes.chop(values, "fixed7_8"),
        ),
        (
            "mptorch",
            f"matmul {n}^3, every step rounded",
            lambda q: q.float_mm(
                f, g, exp_add=5, man_add=2, exp_mul=5, man_mul=2, fma=False, saturate=False
            ),
            stepwise,
        ),
    ]
    for peer, what, run_peer, run_own in works:
        if not is_installed(peer):
            print_row(what=what, peer=peer, not_measured="not installed")
            continue
        try:
            quant = module(f"{peer}.quant")
            run_peer(quant)
        except (NotMeasuredError, RuntimeError, NotImplementedError) as error:
            print_row(what=what, peer=peer, not_measured=str(error).strip().splitlines()[0])
            continue
        of_peer, own = clock(lambda q=quant, call=run_peer: call(q)), clock(run_own)
        print_row(
            what=what,
            peer=peer,
            milliseconds=own,
            milliseconds_of_peer=of_peer,
            times_as_fast=of_peer / own,
        )


def main():
    groups = {
        "memory": memory,
        "sums": sums,
        "products": products,
        "training": training,
        "peers": peers,
    }
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("group", choices=groups)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    allow_tf32(False)
    groups[options.group](options.device, Clock(options.device))


if __name__ == "__main__":
    main()
