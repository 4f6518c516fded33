"""torchmetrics (seen with 1.9): the states of a metric, which are no buffers. MaxMetric begins with
-inf, and a posit would be NaR for good."""

from __future__ import annotations

import functools

from ..host.stock_functions import write_infinities


def applying(stock):
    """Metric._apply, behind to and set_dtype: infinities of states and their defaults are as it
    were written in the new dtype, as those of buffers are (host/hooks/buffers.py)."""

    @functools.wraps(stock)
    def apply(self, fn, *args, **kwargs):
        @functools.wraps(fn)  # stock's code goes by its name
        def convert(tensor):
            converted = fn(tensor)
            write_infinities(tensor, converted)
            return converted

        return stock(self, convert, *args, **kwargs)

    return apply
