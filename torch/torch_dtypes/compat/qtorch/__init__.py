"""QPyTorch's names (qtorch 0.3.0) over this package."""
