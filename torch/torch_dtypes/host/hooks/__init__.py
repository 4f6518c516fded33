"""Modules that put code of this package into PyTorch's Python, or behind its builtins.

A stock wheel needs them; inside PyTorch's own tree none is needed. ``host/install.py`` installs
all, once per process.
"""
