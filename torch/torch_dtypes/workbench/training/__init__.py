"""The training command's parts: networks, data sets, recipes, the loop and the report.

Nothing in here knows a number format. A network is built in float32 and trained by a stock
optimizer, after ``model.to(dtype)``, with ``torch_dtypes.quantize_`` or within
``torch_dtypes.optim.LowPrecision``, as a recipe says; what a format means is decided below
PyTorch's operators.
"""
