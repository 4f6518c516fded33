"""What ``torch.distributed`` must know of format tensors."""
