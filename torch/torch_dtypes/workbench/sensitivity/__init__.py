"""Measure how sensitive each layer of a network is to formats, and find the best mixture of formats
within a budget of bits.

``layers`` selects the modules to round, their rules and the size of their weights; ``study``
measures; ``results`` has the results, and ``choosing`` the assignment of formats; ``figures`` and
``report`` show them.
"""

from .choosing import Mixture
from .results import Sensitivity
from .study import sensitivity

__all__ = ["Mixture", "Sensitivity", "sensitivity"]
