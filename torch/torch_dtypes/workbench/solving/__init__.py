"""Solve linear systems by iterative refinement in several formats: which converge?

``systems`` makes matrices from expressions, files and tensors. ``study`` runs the cells, each a
system, a format and a method, and keeps what is done. ``results`` has the results, which ``report``
and ``heatmap`` show.
"""

from .results import Solutions
from .study import solve

__all__ = ["Solutions", "solve"]
