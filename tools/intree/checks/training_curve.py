#!/usr/bin/env python3
"""Trains LeNet-5 on MNIST in posit16es2, on one thread, and writes its curve as JSON.

The curve has losses, accuracies and a digest of the weights after each epoch.

    cd tools/intree/checks
    python training_curve.py --data FOLDER --out overlay.json    # beside a wheel
    # in the tree's PyTorch
    PYTHONPATH=SOURCE python training_curve.py --data FOLDER --out tree.json
    python training_curve.py --compare overlay.json tree.json

The sums are exact (--accumulate). PyTorch's own sums in float32 come from different libraries in
the two builds and differ in their last bits.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path


def digest(model) -> str:
    """Return a digest of the codes of all parameters."""
    from torch_dtypes import codes

    sha = hashlib.sha256()
    for name, p in model.state_dict().items():
        sha.update(name.encode() + codes(p).contiguous().numpy().tobytes())
    return sha.hexdigest()


def curve(options) -> dict:
    import torch

    import torch_dtypes
    from torch_dtypes.workbench.training.data import load_dataset
    from torch_dtypes.workbench.training.loop import Config, Training

    torch.set_num_threads(1)
    data = load_dataset("mnist", options.data, options.train_samples, options.test_samples)
    training = Training(
        Config(epochs=options.epochs, optimizer=options.optimizer),
        data,
        torch_dtypes.dtype(options.dtype),
        options.seed,
    )
    epochs = []

    def on_epoch(epoch):
        epochs.append(
            {
                "train_loss": epoch.train_loss,
                "test_loss": epoch.test_loss,
                "accuracy": epoch.accuracy,
                "weights": digest(training.model),
            }
        )
        print(json.dumps(epochs[-1] | {"seconds": round(epoch.seconds, 1)}), flush=True)

    begins = digest(training.model)
    with torch_dtypes.accumulate(options.accumulate):
        training.go(on_epoch=on_epoch)
    kept = ("dtype", "optimizer", "epochs", "train_samples", "test_samples", "seed", "accumulate")
    return {
        "torch": torch.__version__,
        "settings": {name: getattr(options, name) for name in kept},
        "begins": begins,
        "epochs": epochs,
    }


def list_differences(first: dict, second: dict) -> list[str]:
    """Return the differences bit for bit; the releases of PyTorch may differ."""
    lines = [
        f"{key}: {first[key]} and {second[key]}"
        for key in ("settings", "begins")
        if first[key] != second[key]
    ]
    for number, (a, b) in enumerate(zip(first["epochs"], second["epochs"], strict=True), 1):
        lines += [
            f"epoch {number}, {key}: {a[key]!r} and {b[key]!r}" for key in a if a[key] != b[key]
        ]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--compare",
        nargs=2,
        type=Path,
        metavar="FILE",
        help="print the differences of two curves; 1 if there are any",
    )
    parser.add_argument("--data", default="data", help="folder with MNIST/raw")
    parser.add_argument("--out", type=Path, help="file for the curve")
    parser.add_argument("--dtype", default="posit16es2")
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--accumulate", default="exact", help="a policy of torch_dtypes.accumulate")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--train-samples", type=int, default=6000)
    parser.add_argument("--test-samples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.compare:
        lines = list_differences(*(json.loads(path.read_text()) for path in options.compare))
        print("\n".join(lines) or "equal, bit for bit")
        return int(bool(lines))
    if options.out is None:
        parser.error("expected --out FILE or --compare FILE FILE, but got neither; give one")
    options.out.write_text(json.dumps(curve(options), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
