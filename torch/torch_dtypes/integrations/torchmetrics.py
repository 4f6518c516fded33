"""torchmetrics (seen with 1.9): the states of a metric, which are no buffers.

MaxMetric begins with -inf, and a posit would stay NaR.
"""

from __future__ import annotations

import functools

from ..host.stock_functions import write_infinities


def extend_apply(stock):
    """Keep infinities of states and their defaults in Metric.to and set_dtype.

    They become the format's numbers for infinities, as in buffers (host/hooks/buffers.py).
    """

    @functools.wraps(stock)
    def apply(self, fn, *args, **kwargs):
        @functools.wraps(fn)  # torchmetrics reads its name
        def convert(tensor):
            converted = fn(tensor)
            write_infinities(tensor, converted)
            return converted

        return stock(self, convert, *args, **kwargs)

    return apply
