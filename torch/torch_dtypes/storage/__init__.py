"""Format tensors in files: pickles, safetensors, values of stock dtypes."""
