"""What other libraries need of us: one module each, loaded and installed when that library is imported."""

from __future__ import annotations

import importlib

from ._imports import when_imported

# The library's module, and ours with an install(module).
_TRAINER = "trainer.connectors.accelerator_connector"
_ADAPTERS = {
    "safetensors.torch": "safetensors", "einops._backends": "einops", "torch.utils.tensorboard._convert_np": "tensorboard",
    "datasets.features.features": "datasets",
    "lightning.fabric.connector": "lightning", "lightning_fabric.connector": "lightning",
    f"lightning.pytorch.{_TRAINER}": "lightning", f"pytorch_lightning.{_TRAINER}": "lightning",
    "torch.distributed.fsdp.fully_sharded_data_parallel": "fsdp", "torch.distributed._functional_collectives": "functional_collectives",
}  # fmt: skip


def _installer(adapter: str):
    return lambda module: importlib.import_module(f".{adapter}", __name__).install(module)


def install() -> None:
    """Called once, at import."""
    when_imported({name: _installer(adapter) for name, adapter in _ADAPTERS.items()})
