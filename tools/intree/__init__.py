"""Puts the formats into a PyTorch source tree, as types of its own list:
`tools/intree/build --help`, docs/in-tree.md."""
