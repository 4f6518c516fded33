"""What the GPU's kernels cost, as ratios within one run: `python benchmarks/gpu_speed.py memory|sums|products|training`.

One line of JSON for each measurement. `--device cpu` runs the same bodies, small, to see that they run.
"""

import argparse
import json
import statistics
import time

import torch

import torch_dtypes

FORMATS = ["q43", "posit8es2", "posit16es2", "e5m5", "posit32es2"]


class Clock:
    """Medians of a call's milliseconds: by CUDA's events on a GPU, after warming up."""

    def __init__(self, device):
        self.cuda = device == "cuda"

    def __call__(self, call, repeats=15, warm=3):
        for _ in range(warm if self.cuda else 1):
            call()
        times = []
        for _ in range(repeats if self.cuda else 2):
            if self.cuda:
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                call()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end))
            else:
                began = time.perf_counter()
                call()
                times.append(1e3 * (time.perf_counter() - began))
        return statistics.median(times)


def say(**row):
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}), flush=True)


def memory(device, clock):
    """Casts and elementwise operators against a copy of as many bytes."""
    n = 1 << (28 if device == "cuda" else 16)
    source = torch.zeros(n, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = 2 * n / clock(lambda: target.copy_(source)) / 1e6
    say(what="copy", gigabytes_a_second=copied)
    m = 1 << (26 if device == "cuda" else 14)
    values = torch.randn(m, device=device)
    for name in FORMATS:
        dtype = getattr(torch, name)
        x = values.to(dtype)
        width = dtype.itemsize
        out = torch.empty_like(x)
        calls = {
            "encode": (lambda x=x, d=dtype: values.to(d), 4 + width),
            "decode": (lambda x=x: x.float(), width + (4 if torch_dtypes.format_of(dtype).fits_float else 8)),
            "x + x": (lambda x=x: x + x, 3 * width),
            "x * y": (lambda x=x, o=out: x * o, 3 * width),
            "x / y": (lambda x=x, o=out: x / o, 3 * width),
            "x * 0.1": (lambda x=x: x * 0.1, 2 * width),
            "addcmul": (lambda x=x: torch.addcmul(x, x, x), 4 * width),
            "exp": (lambda x=x: x.exp(), 2 * width),
            "transposed + x": (lambda x=x: x.view(1 << 7, -1).t() + x.view(-1, 1 << 7), 3 * width),
        }
        for what, (call, moved) in calls.items():
            took = clock(call)
            rate = moved * m / took / 1e6
            say(what=what, format=name, milliseconds=took, gigabytes_a_second=rate, of_copy=rate / copied)
        with torch_dtypes.rounding("stochastic"):
            took = clock(lambda d=dtype: values.to(d))
            say(what="encode, stochastic", format=name, milliseconds=took, of_copy=(4 + width) * m / took / 1e6 / copied)
    for name in ("posit16es2", "q43"):
        took = clock(lambda name=name: torch_dtypes.chop(values, name))
        say(what="chop", format=name, milliseconds=took, of_copy=8 * m / took / 1e6 / copied)


def sums(device, clock):
    """Dot products rounded at every step, and exact ones."""
    small, large = (1024, 4096) if device == "cuda" else (24, 48)
    for name in ("posit16es2", "q43", "e5m5"):
        dtype = getattr(torch, name)
        for policy, options, n in (
            ("format", {}, large),
            ("format", {"accumulator": "fp32"}, large),
            ("format", {}, small),
            ("format", {"fused": True}, small),
            ("chunked(32)", {}, small),
            ("exact", {}, small),
        ):
            a, b = torch.randn(n, n, device=device).to(dtype), torch.randn(n, n, device=device).to(dtype)
            with torch_dtypes.accumulate(policy, **options):
                took = clock(lambda a=a, b=b: a @ b, repeats=5, warm=1)
            what = " ".join([policy, *(f"{k}={v}" for k, v in options.items())])
            say(what=what, format=name, size=n, milliseconds=took, tera_multiply_adds=n**3 / took / 1e9)


def products(device, clock):
    """matmul as it is by default, beside stock types'."""
    n = 4096 if device == "cuda" else 64
    torch.backends.cuda.matmul.allow_tf32 = False
    stock = {}
    for dtype in (torch.bfloat16, torch.float32):
        a = torch.randn(n, n, device=device).to(dtype)
        stock[dtype] = clock(lambda a=a: a @ a)
        say(what="matmul", format=str(dtype), size=n, milliseconds=stock[dtype])
    for name in FORMATS:
        a = torch.randn(n, n, device=device).to(getattr(torch, name))
        took = clock(lambda a=a: a @ a)
        say(what="matmul", format=name, size=n, milliseconds=took, of_bfloat16=took / stock[torch.bfloat16], of_float32=took / stock[torch.float32])


def training(device, clock):
    """A LeNet-5 step at batch 256 beside float32's."""
    batch = 256 if device == "cuda" else 4

    def step_of(dtype):
        torch.manual_seed(0)
        layers = torch.nn
        net = layers.Sequential(
            layers.Conv2d(1, 6, 5, padding=2), layers.ReLU(), layers.MaxPool2d(2), layers.Conv2d(6, 16, 5), layers.ReLU(), layers.MaxPool2d(2),
            layers.Flatten(), layers.Linear(400, 120), layers.ReLU(), layers.Linear(120, 84), layers.ReLU(), layers.Linear(84, 10),
        ).to(dtype).to(device)  # fmt: skip
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        x, y = torch.randn(batch, 1, 28, 28).to(dtype).to(device), torch.randint(0, 10, (batch,)).to(device)

        def step():
            optimizer.zero_grad()
            layers.functional.cross_entropy(net(x), y).backward()
            optimizer.step()

        return clock(step, repeats=20, warm=5)

    base = step_of(torch.float32)
    say(what="LeNet-5 step", format="float32", milliseconds=base)
    for name in ("q43", "posit8es2", "posit16es2"):
        took = step_of(getattr(torch, name))
        say(what="LeNet-5 step", format=name, milliseconds=took, of_float32=took / base)


def main():
    groups = {"memory": memory, "sums": sums, "products": products, "training": training}
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("group", choices=groups)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    groups[options.group](options.device, Clock(options.device))


if __name__ == "__main__":
    main()
