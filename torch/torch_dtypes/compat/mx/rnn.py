"""microxcaling's recurrent layer, made of its products and rounded arithmetic."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from .activations import sigmoid, tanh
from .inside import stock_within
from .products import Layer, linear
from .simd_ops import simd_add, simd_mul

__all__ = ["LSTM"]


class LSTM(Layer, nn.LSTM):
    """``torch.nn.LSTM``: products by ``linear``, gates by ``sigmoid``, ``tanh``, ``simd_add`` and
    ``simd_mul``.

    Raises:
        AssertionError: ``batch_first`` or ``proj_size``.
    """

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        if self.batch_first or self.proj_size:
            raise AssertionError(
                f"expected batch_first=False and proj_size=0, but got {self.batch_first} and "
                f"{self.proj_size}; transpose the input"
            )

    def _project(self, x: torch.Tensor, which: str, end: str) -> torch.Tensor:
        bias = getattr(self, f"bias_{which}_{end}", None)
        return linear(x, getattr(self, f"weight_{which}_{end}"), bias, self.mx_specs)

    def _step(self, inputs, h, c, end: str):
        specs = self.mx_specs
        gates = simd_add(inputs, self._project(h, "hh", end), specs).chunk(4, -1)
        i, f, o = (sigmoid(gates[k], specs) for k in (0, 1, 3))
        kept, new = simd_mul(f, c, specs), simd_mul(i, tanh(gates[2], specs), specs)
        c = simd_add(kept, new, specs)
        return simd_mul(o, tanh(c, specs), specs), c

    def _run(self, inputs: list[torch.Tensor], h, c, end: str):
        """Return the output of each time, and both states after the last. Sequences that have ended
        or have not begun keep their states."""
        times, outputs = range(len(inputs)), [None] * len(inputs)
        for t in reversed(times) if end.endswith("_reverse") else times:
            n = inputs[t].shape[0]
            outputs[t], now = self._step(inputs[t], h[:n], c[:n], end)
            h = torch.cat((outputs[t], h[n:])) if n < h.shape[0] else outputs[t]
            c = torch.cat((now, c[n:])) if n < c.shape[0] else now
        return outputs, h, c

    @stock_within
    def forward(self, input, hx=None):
        if self.mx_none:
            return super().forward(input, hx)
        packed = isinstance(input, PackedSequence)
        x, sizes, order, back = input if packed else (input, None, None, None)
        if not packed and x.dim() != 3:
            raise ValueError(f"expected an input of 3 dimensions, but got {x.dim()}; add a batch")
        batch = int(sizes[0]) if packed else x.shape[1]
        ends = ("", "_reverse") if self.bidirectional else ("",)
        if hx is None:
            hx = (x.new_zeros(len(ends) * self.num_layers, batch, self.hidden_size),) * 2
        else:
            hx = self.permute_hidden(hx, order)
        self.check_forward_args(x, hx, sizes)
        states = []
        for layer in range(self.num_layers):
            if layer and self.training and self.dropout:
                x = nn.functional.dropout(x, self.dropout)
            sides = []
            for side, direction in enumerate(ends):
                k, end = len(ends) * layer + side, f"l{layer}{direction}"
                inputs = self._project(x, "ih", end)
                steps = inputs.split(sizes.tolist()) if packed else inputs.unbind(0)
                outputs, h, c = self._run(list(steps), hx[0][k], hx[1][k], end)
                sides.append(torch.cat(outputs) if packed else torch.stack(outputs))
                states.append((h, c))
            x = torch.cat(sides, -1)
        hidden = tuple(torch.stack(part) for part in zip(*states, strict=True))
        y = PackedSequence(x, sizes, order, back) if packed else x
        return y, self.permute_hidden(hidden, back)
