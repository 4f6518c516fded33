"""Which formats each layer of a network bears, and which mixture of them fits a budget of bits.

``layers`` says which modules are rounded, how, and what their weights take; ``study`` measures;
``results`` has what was found, and ``choosing`` the assignment of formats; ``figures`` and
``report`` show it.
"""

from .choosing import Mixture
from .results import Sensitivity
from .study import sensitivity

__all__ = ["Mixture", "Sensitivity", "sensitivity"]
