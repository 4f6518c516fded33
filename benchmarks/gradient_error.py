r"""Compares a network's gradients in a dtype with float32's, by layer, loss scale and loss dtype.

The network is CifarNet on MNIST after some steps in float32. Its weights are rounded to the dtype.
The gradients of the mean loss of 128 images are computed twice: in the dtype, and in float32 with
the same rounded weights. The output is the cosine of the angle between the two, a slash, and the
ratio of their norms: for all parameters, and for each layer's weights.

    python benchmarks/gradient_error.py --data-dir DATA --seed 1 --steps 0 --steps 20 \\
        --steps 63 --dtype q52 --loss-scale 128
"""

import copy

import click
import torch
from torch.nn import functional as F

import torch_dtypes
from torch_dtypes.workbench.training import recipes
from torch_dtypes.workbench.training.data import load_dataset
from torch_dtypes.workbench.training.loop import Config, Training, cross_entropy

_CONFIG = Config(
    model="cifarnet", epochs=6, optimizer="sgd", lr=0.05, momentum=0.9, schedule="cosine"
)
_IMAGES, _BATCH = 128, 32


def gradients(model, data, dtype, loss_scale, loss_dtype):
    """Return the sum over the batches of each parameter's gradients, unscaled, in float32."""
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(5))[:_IMAGES]
    total = [torch.zeros(p.shape) for p in model.parameters()]
    for index in order.split(_BATCH):
        images, labels = data.train.batch(index)
        model.zero_grad()
        loss = cross_entropy(model(images.to(dtype)), labels, loss_dtype)
        factor = torch.tensor(float(loss_scale)).to(loss.dtype).float()
        (loss * factor).backward()
        total = [
            t + p.grad.float() / factor for t, p in zip(total, model.parameters(), strict=True)
        ]
    return total


def compare(want, got):
    a, b = (torch.cat([t.flatten() for t in each]).double() for each in (want, got))
    return f"{F.cosine_similarity(a, b, 0).item():.3f}/{(b.norm() / a.norm()).item():.2f}"


@click.command(help=__doc__.split("\n\n")[0])
@click.option("--data-dir", default="data", show_default=True)
@click.option(
    "--seed", default=0, show_default=True, help="Seed of the initial weights and image order."
)
@click.option(
    "--steps",
    multiple=True,
    default=(0, 20, 63),
    show_default=True,
    type=click.IntRange(0),
    help="Number of steps in float32 before the comparison.",
)
@click.option(
    "--dtype",
    "names",
    multiple=True,
    default=("q52", "q43", "posit8es1", "posit8es2", "fixed8_8"),
    show_default=True,
)
@click.option("--loss-scale", "scales", multiple=True, default=(128.0, 256.0), show_default=True)
def main(data_dir, seed, steps, names, scales):
    torch.set_num_threads(1)
    data = load_dataset("mnist", data_dir, 2000, 2000)
    training = Training(_CONFIG, data, torch.float32, seed)
    for stop in sorted(steps):
        if stop > training.steps_done:
            training.go(should_stop=lambda stop=stop: training.steps_done >= stop)
        for name in names:
            dtype, plain = torch_dtypes.dtype(name), copy.deepcopy(training.model)
            recipes.round_weights(plain, name)
            want = gradients(plain, data, torch.float32, 1, "network")
            for scale in scales:
                for loss_dtype in ("network", "float32"):
                    got = gradients(copy.deepcopy(plain).to(dtype), data, dtype, scale, loss_dtype)
                    layers = " ".join(
                        compare([w], [g]) for w, g in zip(want, got, strict=True) if w.dim() > 1
                    )
                    loss = name if loss_dtype == "network" else loss_dtype
                    print(
                        f"{stop:3} steps, {name:9} scale {scale:5g}, loss in {loss:9}: "
                        f"{compare(want, got)}, layers {layers}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
