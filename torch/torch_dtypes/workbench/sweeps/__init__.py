"""``sweep``: train a network in many formats, rounding modes, accumulators and recipes, as a grid
of cells, each in its own process.

The grid is data (``cells``, ``grid``). ``work`` runs one cell, in a process that ``server`` forks.
``engines`` runs many, in parallel or over machines. ``store`` keeps the outcomes, a file for each
cell. ``sweeping`` has the results, which ``tables`` and ``heatmap`` show.
"""

from .calling import sweep

__all__ = ["sweep"]
