"""A pytest plugin for PyTorch's own tree (docs/in-tree.md), where the dtypes are PyTorch's and nothing of the overlay is there.

    PYTHONPATH=SOURCE python -m pytest test/numbers test/operators ...

What tests the overlay itself, what it leaves of stock code, or what such a build was made without, is not collected. All others are those that run
beside a wheel; docs/in-tree.md says which of them fail there, and why.
"""

import importlib.util
from pathlib import Path

TEST = Path(__file__).resolve().parent
IN_TREE = importlib.util.find_spec("torch_dtypes._overlay") is None

# Files, by what they test.
OVERLAY = (
    "graphs/test_chains.py", "graphs/test_compiled_formats.py", "graphs/test_graph_capture.py", "graphs/test_stock_compile.py",
    "graphs/test_exported_formats.py", "graphs/test_varying_sizes.py", "python/test_hooks.py", "python/test_loading_again.py", "python/test_stock.py",
)  # fmt: skip
DISTRIBUTED = (
    "python/test_collectives.py", "python/test_ddp.py", "python/test_distributed.py", "python/test_distributed_tensors.py",
    "python/test_sharded.py", "python/test_train_ranks.py",
)  # fmt: skip
NEWER = ("graphs/test_listings.py",)  # of DebugMode, which PyTorch 2.6 lacks
LEFT_OUT = {str(TEST / name) for name in (*OVERLAY, *DISTRIBUTED, *NEWER, "tools")}


def pytest_ignore_collect(collection_path, config):
    return True if IN_TREE and str(collection_path) in LEFT_OUT else None
