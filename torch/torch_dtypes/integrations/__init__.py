"""What other libraries need of us: one module each, loaded and installed when that library is imported."""

from __future__ import annotations

import importlib

from .. import _host
from ._imports import when_imported

# The library's module, and ours with an install(module), or what its function is called.
_TRAINER = "trainer.connectors.accelerator_connector"
_T5_NORMS = "idefics kosmos2_5 longt5 mt5 pix2struct pop2piano switch_transformers t5 udop umt5".split()  # of transformers' models
_PIPELINES = "automatic_speech_recognition document_question_answering image_classification token_classification".split()
_ADAPTERS = {
    "safetensors.torch": "safetensors", "einops._backends": "einops", "torch.utils.tensorboard._convert_np": "tensorboard",
    "torch.distributed.rpc.api": "rpc", "torchmetrics.metric": "torchmetrics",
    "lightning.fabric.connector": "lightning", "lightning_fabric.connector": "lightning",
    f"lightning.pytorch.{_TRAINER}": "lightning", f"pytorch_lightning.{_TRAINER}": "lightning",
    **{f"transformers.models.{name}.modeling_{name}": "transformers:install_norms" for name in _T5_NORMS},
    "diffusers.models.normalization": "transformers:install_norms",
    "diffusers.models.transformers.t5_film_transformer": "transformers:install_norms",
    **{f"transformers.pipelines.{name}": "transformers:install_pipeline" for name in _PIPELINES},
    "transformers.trainer_pt_utils": "transformers:install_trainer",
    "accelerate.utils.modeling": "accelerate:install_sizes", "accelerate.utils.offload": "accelerate:install_offloading",
    **_host.ADAPTERS,
}  # fmt: skip


def _installer(adapter: str):
    name, _, function = adapter.partition(":")
    return lambda module: getattr(importlib.import_module(f".{name}", __name__), function or "install")(module)


def install() -> None:
    """Called once, at import."""
    when_imported({name: _installer(adapter) for name, adapter in _ADAPTERS.items()})
