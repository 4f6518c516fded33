"""What PyTorch must be told of the dtypes: beside a stock PyTorch, the hooks. (Inside PyTorch's own
tree another module stands here.)"""

from .all_hooks import install

__all__ = ["install"]
