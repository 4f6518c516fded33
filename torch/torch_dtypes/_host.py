"""What PyTorch must be told of the dtypes: beside a stock PyTorch, the hooks. (Inside PyTorch's own tree another module stands here.)"""

from __future__ import annotations

from ._overlay.hooks import install

__all__ = ["ADAPTERS", "install"]

# Of integrations/, those that stand in front of PyTorch's own Python: what they are for, and the module.
ADAPTERS = {
    "torch.distributed.fsdp.fully_sharded_data_parallel": "fsdp",
    "torch.distributed.fsdp._fully_shard._fsdp_collectives": "fsdp:install_collectives",
    "torch.distributed.pipelining.stage": "fsdp:install_stages",
    "torch.distributed._functional_collectives": "functional_collectives",
    "torch.distributed.tensor": "dtensor",
    "torch._dynamo.trace_rules": "dynamo",
    "torch.export.pt2_archive._package": "dynamo:install_packages",
}
