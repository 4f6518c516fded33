"""The parts of the training command: networks, data sets, recipes, the loop and the report.

No code here knows a number format. A network is built in float32 and trained by a stock optimizer:
after ``model.to(dtype)``, with ``torch_dtypes.quantize_`` or within
``torch_dtypes.optim.LowPrecision``, by the recipe. The meaning of a format is decided below
PyTorch's operators.
"""
