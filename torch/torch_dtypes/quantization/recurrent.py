"""Recurrent layers step by step, by the equations of torch.nn's documentation, so that each product
is a call of ``F.linear``."""

from __future__ import annotations

import torch
from torch.nn import functional as F


def _step_plain(nonlinearity, x, state, w, b, _):
    return (nonlinearity(F.linear(state[0], w, b) + x),)


def _step_lstm(x, state, w, b, projection):
    enters, forgets, new, leaves = (F.linear(state[0], w, b) + x).chunk(4, -1)
    cell = forgets.sigmoid() * state[1] + enters.sigmoid() * new.tanh()
    hidden = leaves.sigmoid() * cell.tanh()
    return hidden if projection is None else F.linear(hidden, projection), cell


def _step_gru(x, state, w, b, _):
    of_input, of_hidden = x.chunk(3, -1), F.linear(state[0], w, b).chunk(3, -1)
    resets, keeps = ((h + i).sigmoid() for h, i in zip(of_hidden[:2], of_input[:2], strict=True))
    new = (of_input[2] + of_hidden[2] * resets).tanh()
    return ((state[0] - new) * keeps + new,)


# Steps of the layers that torch._VF has: of an input's products, the state, and the weights.
CELLS = {
    "lstm": _step_lstm,
    "gru": _step_gru,
    "rnn_tanh": lambda *args: _step_plain(torch.tanh, *args),
    "rnn_relu": lambda *args: _step_plain(torch.relu, *args),
}


def run_recurrent(name: str, x: torch.Tensor, *args):
    """Compute what ``torch._VF``'s function of this name does, for a sequence, a packed sequence or
    a cell's one step."""
    if name.endswith("_cell"):
        hidden, w, u, *biases = args
        state = tuple(hidden) if isinstance(hidden, (tuple, list)) else (hidden,)
        b, c = biases or (None, None)
        new = CELLS[name.removesuffix("_cell")](F.linear(x, w, b), state, u, c, None)
        return new if len(new) > 1 else new[0]
    is_packed = not isinstance(args[2], bool)
    sizes, *args = args if is_packed else (None, *args)
    hidden, weights, has_biases, layers, dropout, training, both_ways, *first = args
    batch_first = bool(first and first[0])
    x = x.transpose(0, 1) if batch_first else x
    states = list(zip(*hidden, strict=True)) if name == "lstm" else [(h,) for h in hidden]
    ways, count = 1 + both_ways, len(weights) // len(states)
    last = []
    for layer in range(layers):
        outputs = []
        for way in range(ways):
            own = weights[(layer * ways + way) * count :][:count]
            y, state = _run_layer(
                CELLS[name], x, states[layer * ways + way], own, has_biases, sizes, way == 1
            )
            outputs.append(y)
            last.append(state)
        x = outputs[0] if ways == 1 else torch.cat(outputs, -1)
        if layer < layers - 1:
            x = F.dropout(x, dropout, training and dropout > 0)
    x = x.transpose(0, 1) if batch_first else x
    return x, *(torch.stack(one) for one in zip(*last, strict=True))


def _run_layer(step, x, state, weights, has_biases: bool, sizes, is_reversed: bool):
    """Run one direction of one layer. Return its outputs and its last state.

    A packed sequence has the sizes of its batch at each step. States of shorter sequences wait
    behind those of the step.
    """
    w, u, *others = weights
    b, c = others[:2] if has_biases else (None, None)
    projection = others[2 * has_biases] if len(others) > 2 * has_biases else None
    gates = F.linear(x, w, b)
    steps = list(gates.unbind(0) if sizes is None else gates.split(sizes.tolist()))
    outputs: list[torch.Tensor] = [x] * len(steps)
    for i in reversed(range(len(steps))) if is_reversed else range(len(steps)):
        size = steps[i].shape[0]
        new = step(steps[i], tuple(s[:size] for s in state), u, c, projection)
        outputs[i] = new[0]
        state = tuple(
            n if size == len(s) else torch.cat((n, s[size:]))
            for n, s in zip(new, state, strict=True)
        )
    return (torch.stack(outputs) if sizes is None else torch.cat(outputs)), state
