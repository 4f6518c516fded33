"""Hooks of other libraries: a row for each place, and a module for each library.

The import of the library loads the module and installs the rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from ..formats.lazy import attach
from ..host import table
from ..host.table import Hook, Kind, wait_for

__getattr__, __dir__ = attach(__name__, {".transformers_config": "TransformersConfig"})

# Models of transformers with a norm like T5's.
_T5_NORMS = "idefics kosmos2_5 longt5 mt5 pix2struct pop2piano switch_transformers t5 udop umt5"
_NORMS = (
    *(f"transformers.models.{name}.modeling_{name}" for name in _T5_NORMS.split()),
    "diffusers.models.normalization",
    "diffusers.models.transformers.t5_film_transformer",
)
_PIPELINES = (
    "transformers.pipelines.automatic_speech_recognition",
    "transformers.pipelines.document_question_answering",
    "transformers.pipelines.image_classification",
    "transformers.pipelines.token_classification",
)
_TRAINER = "trainer.connectors.accelerator_connector"
_TENSORBOARD = "torch.utils.tensorboard._convert_np"
_RPC = "torch.distributed.rpc.api"
_RPC_REDUCER = "torch.distributed.rpc.internal._InternalRPCPickler._tensor_reducer"
_CONNECTOR, _PLUGIN = "_AcceleratorConnector", "_check_and_init_precision"

HOOKS = [
    wait_for("safetensors.torch", "save", Kind.CALLED, "safetensors:save"),
    wait_for("safetensors.torch", "save_file", Kind.CALLED, "safetensors:save_file"),
    wait_for("safetensors.torch", "_SIZE", Kind.REPLACED, "safetensors:Sizes"),
    wait_for("einops._backends", "TorchBackend.is_float_type", Kind.CALLED, "einops:is_float_type"),
    wait_for(_TENSORBOARD, "_prepare_pytorch", Kind.CALLED, "tensorboard:prepare"),
    Hook(_RPC_REDUCER, Kind.CALLED, "rpc:reduce", imported=_RPC),
    *(
        wait_for(_RPC, f"_invoke_{name}", Kind.REPLACED, "rpc:refuse_arguments")
        for name in ("rpc_builtin", "remote_builtin", "rpc_torchscript", "remote_torchscript")
    ),
    wait_for("torchmetrics.metric", "Metric._apply", Kind.REPLACED, "torchmetrics:extend_apply"),
    *(
        wait_for(f"{package}.connector", name, kind, f"lightning:{replacement}")
        for package in ("lightning.fabric", "lightning_fabric")
        for name, kind, replacement in (
            ("_convert_precision_to_unified_args", Kind.CALLED, "precision_name"),
            (f"_Connector.{_PLUGIN}", Kind.REPLACED, "make_plugin"),
        )
    ),
    *(
        wait_for(module, f"{_CONNECTOR}.{_PLUGIN}", Kind.REPLACED, "lightning:make_plugin")
        for module in (f"lightning.pytorch.{_TRAINER}", f"pytorch_lightning.{_TRAINER}")
    ),
    *(wait_for(module, "", Kind.TOLD, "transformers:extend_norm") for module in _NORMS),
    *(wait_for(module, "", Kind.TOLD, "transformers:extend_pipeline") for module in _PIPELINES),
    wait_for("transformers.quantizers.auto", "", Kind.TOLD, "transformers:register_rules"),
    *(
        wait_for(module, name, Kind.CALLED, f"{library}:{name}")
        for library, module, name in (
            ("transformers", "transformers.trainer_pt_utils", "nested_numpify"),
            ("accelerate", "accelerate.utils.modeling", "dtype_byte_size"),
            ("accelerate", "accelerate.utils.offload", "offload_weight"),
            ("accelerate", "accelerate.utils.offload", "load_offloaded_weight"),
        )
    ),
]


def _warn(install: Callable[[], None], name: str) -> None:
    """Install a library's rows. An error becomes a warning, since the library's import must
    succeed."""
    try:
        install()
    except Exception as error:
        warnings.warn(
            f"expected a supported release of {name}, but got one that torch_dtypes cannot hook; "
            f"{name} works, but may not take tensors of number formats. "
            f"{type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


def install() -> None:
    """Install the rows, once, at load."""
    table.install(HOOKS, _warn)
