"""What other libraries need of us: one module each, loaded and installed when that library is imported."""

from __future__ import annotations

import importlib

from .. import _host
from ._imports import when_imported

# The library's module, and ours with an install(module), or what its function is called.
_TRAINER = "trainer.connectors.accelerator_connector"
_ADAPTERS = {
    "safetensors.torch": "safetensors", "einops._backends": "einops", "torch.utils.tensorboard._convert_np": "tensorboard",
    "datasets.features.features": "datasets", "torch.distributed.pipelining._IR": "pipelining", "torch.distributed.rpc.api": "rpc",
    "lightning.fabric.connector": "lightning", "lightning_fabric.connector": "lightning",
    f"lightning.pytorch.{_TRAINER}": "lightning", f"pytorch_lightning.{_TRAINER}": "lightning",
    **_host.ADAPTERS,
}  # fmt: skip


def _installer(adapter: str):
    name, _, function = adapter.partition(":")
    return lambda module: getattr(importlib.import_module(f".{name}", __name__), function or "install")(module)


def install() -> None:
    """Called once, at import."""
    when_imported({name: _installer(adapter) for name, adapter in _ADAPTERS.items()})
