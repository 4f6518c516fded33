"""Hooks of ``torch.distributed`` for format tensors."""
