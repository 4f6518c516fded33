"""Measure how sensitive each layer of a network is to formats, and find the best mixture of formats
within a budget of bits.

``layers`` selects the modules to round, their rules and the size of their weights. ``study``
measures, and ``results`` has the results. ``choosing`` assigns formats. ``figures`` and ``report``
show the results.
"""

from .choosing import Mixture
from .results import Sensitivity
from .study import sensitivity

__all__ = ["Mixture", "Sensitivity", "sensitivity"]
