"""``sweep``: which format, rounding mode, accumulator and recipe a network bears, as a grid of
cells, each in a process of its own.

The grid is data (``cells``, ``grid``); what one cell does is ``work``, for which ``server`` forks a
process; ``engines`` runs many, side by side or over machines; ``store`` keeps what came out, a file
a cell; ``sweeping`` has the results, ``tables`` and ``heatmap`` show them.
"""

from .calling import sweep

__all__ = ["sweep"]
