"""The training command's parts: networks, data sets, the loop and the report.

Nothing in here knows a number format. A network is built in float32, moved with
``model.to(dtype)``, fed with ``x.to(dtype)``, and trained by a stock optimizer; what a
dtype means is decided below PyTorch's operators.
"""
