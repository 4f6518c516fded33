"""Puts the formats into a PyTorch source tree, as types of its own list.

See `tools/intree/build --help` and docs/in-tree.md.
"""
