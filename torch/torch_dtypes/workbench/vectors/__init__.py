"""Golden vectors for hardware: operands, results and flags of an operation as codes; and the codes
of a model's run."""

from .layers import dump_vectors

__all__ = ["dump_vectors"]
