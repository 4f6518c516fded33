"""Profiles a training step in a dtype and in float32: self times by kind of operator.

Usage: python benchmarks/step_profile.py [--model resnet18] [--batch-size 32] [--dtype posit16es2]
[--steps 5] [--threads 1]

``language`` is the model of ``torch-dtypes bench --suite language``, and needs transformers.
The profiler names this package's decoding and encoding. It slows small operators down more than
large ones; the shares are of the time under it. Steps of both kinds take turns.
"""

import argparse
import collections

import torch
from torch.profiler import ProfilerActivity, profile

import torch_dtypes
from torch_dtypes.workbench.bench import language, training
from torch_dtypes.workbench.bench.measuring import Sizes

KINDS = {  # text that an operator's name contains
    "encoding": ("formats::encode",),
    "decoding": ("formats::decode",),
    "convolutions": ("conv",),
    "matrix products": ("mm", "linear", "matmul"),
    "attention": ("attention",),
    "normalisation": ("batch_norm",),
    "pooling": ("pool",),
    "optimizer": ("Optimizer", "_foreach", "_fused", "addcmul", "addcdiv", "lerp", "sqrt"),
    "memory": ("empty", "copy", "clone", "fill", "zero", "contiguous", "resize"),
}


def kind_of(name: str) -> str:
    return next(
        (kind for kind, words in KINDS.items() if any(word in name for word in words)), "all else"
    )


def times(step: str, spaces: dict[str, dict], steps: int) -> dict[str, collections.Counter]:
    """Return milliseconds of a step by kind, for each namespace."""
    code = compile(step, "<step>", "exec")
    milliseconds = {name: collections.Counter() for name in spaces}
    for space in spaces.values():
        exec(code, space)
    for _ in range(steps):
        for name, space in spaces.items():
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                exec(code, space)
            for event in profiler.key_averages():
                kind = kind_of(event.key)
                milliseconds[name][kind] += event.self_cpu_time_total / 1000 / steps
    return milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model",
        default="resnet18",
        choices=["lenet5", "resnet18", "language"],
        help="(default: %(default)s)",
    )
    parser.add_argument("--batch-size", type=int, default=32, help="of images (default: 32)")
    parser.add_argument(
        "--dtype",
        default="posit16es2",
        type=torch_dtypes.dtype,
        help="a dtype by name (default: %(default)s)",
    )
    parser.add_argument("--steps", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    def build(d: torch.dtype) -> dict:
        if options.model == "language":
            sizes = Sizes()
            return language.namespace(sizes, lambda model: model.to(d), 4 * sizes.language[2])
        return training.namespace(options.model, options.batch_size, d)

    step = (language if options.model == "language" else training).STEP
    dtypes = (torch.float32, options.dtype)
    spaces = {str(d).removeprefix("torch."): build(d) for d in dtypes}
    stock, own = times(step, spaces, options.steps).values()
    whole = sum(stock.values())
    print(f"| part of a step | float32 | {list(spaces)[1]} | more |\n|---|---|---|---|")
    for kind in sorted({*stock, *own}, key=lambda kind: -own[kind]):
        print(
            f"| {kind} | {stock[kind] / whole:.3f} | {own[kind] / whole:.3f} | "
            f"{(own[kind] - stock[kind]) / whole:+.3f} |"
        )
    print(
        f"| all | 1.000 | {sum(own.values()) / whole:.3f} | {sum(own.values()) / whole - 1:+.3f} |"
    )


if __name__ == "__main__":
    main()
