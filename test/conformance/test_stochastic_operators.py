"""PyTorch's operator database in a format made at run time that rounds stochastically."""

import pytest
from representatives import thin_out
from test_operators import ENTRIES, applies, check

CASES = [
    (kind, name) for kind in ("forward", "backward") for name in ENTRIES if applies(name, kind)
]


@pytest.mark.parametrize(("kind", "name"), thin_out(CASES, 5))
def test_entry(kind, name):
    check("e5m6_stochastic", kind, name, 1)
