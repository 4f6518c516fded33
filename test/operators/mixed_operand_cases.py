"""Calls that stock PyTorch wants in one dtype and PyTorch's database has no sample of: a function
of the floating operands, and their shapes."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F


def _call_layer(layer, names):
    """Return a layer as a function of its input, further inputs, and the named parameters."""

    def call(*operands):
        inputs, parameters = (
            operands[: len(operands) - len(names)],
            operands[len(operands) - len(names) :],
        )
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), inputs)

    return call


def _of_layer(layer, *inputs):
    names = [n for n, _ in layer.named_parameters()]
    return _call_layer(layer, names), [
        *inputs,
        *(tuple(p.shape) for _, p in layer.named_parameters()),
    ]


def _recurrent(function, gates, cell):
    weights = [(gates * 3, 2), (gates * 3, 3), (gates * 3,), (gates * 3,)]

    def whole(x, h, *rest):
        states, w = ((h, rest[0]), rest[1:]) if function is torch.lstm else (h, rest)
        return function(x, states, list(w), True, 1, 0.0, False, False, False)

    def single(x, h, *rest):
        states, w = ((h, rest[0]), rest[1:]) if function is torch.lstm_cell else (h, rest)
        return function(x, states, *w)

    states = [(2, 3)] if cell else [(1, 2, 3)]
    if function in (torch.lstm, torch.lstm_cell):
        states = states * 2
    return (single if cell else whole), [(2, 2) if cell else (4, 2, 2), *states, *weights]


M, V, B = (2, 2), (2,), (2, 2, 2)
PRODUCTS = {
    "inner with a number": (torch.inner, [V, ()]),
    "@": (lambda a, b: a @ b, [M, M]),
    "addmv": (torch.addmv, [V, M, V]),
    "addr": (torch.addr, [M, V, V]),
    "addmm with beta 0": (lambda a, b, c: torch.addmm(a, b, c, beta=0), [M, M, M]),
    "einsum of three": (lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), [M, M, M]),
    "linear of a vector": (F.linear, [V, M, V]),
}

CONVOLUTIONS = {}
for _d, _conv, _transposed in (
    (1, F.conv1d, F.conv_transpose1d),
    (2, F.conv2d, F.conv_transpose2d),
    (3, F.conv3d, F.conv_transpose3d),
):
    for _name, _f in ((f"conv{_d}d", _conv), (f"conv_transpose{_d}d", _transposed)):
        _image, _kernel = (1, 2, *[4] * _d), (2, 2, *[3] * _d)
        CONVOLUTIONS[_name] = (_f, [_image, _kernel, V])
        CONVOLUTIONS[f"{_name} without bias"] = (_f, [_image, _kernel])
CONVOLUTIONS["conv2d of one image"] = (F.conv2d, [(2, 4, 4), (2, 2, 3, 3), V])
CONVOLUTIONS["conv2d, padding same"] = (
    lambda x, w: F.conv2d(x, w, padding="same"),
    [(1, 2, 4, 4), (2, 2, 3, 3)],
)
CONVOLUTIONS["conv2d of groups"] = (
    lambda x, w: F.conv2d(x, w, groups=2),
    [(1, 2, 4, 4), (2, 1, 3, 3)],
)
CONVOLUTIONS["convolution"] = (
    lambda x, w: torch.convolution(x, w, None, [1], [0], [1], False, [0], 1),
    [(1, 2, 4), (2, 2, 3)],
)
CONVOLUTIONS["conv_tbc"] = (torch.conv_tbc, [(4, 1, 2), (3, 2, 2), V])
CONVOLUTIONS["fold"] = (lambda x, w: F.fold(F.unfold(x, 2).mul(w), (3, 3), 2), [(1, 1, 3, 3), ()])

ATTENTION = {
    "MultiheadAttention": _of_layer(nn.MultiheadAttention(2, 1), B, B, B),
    "TransformerEncoderLayer": _of_layer(nn.TransformerEncoderLayer(2, 1, 2, 0.0), B),
}

RECURRENT = {
    "rnn_tanh": _recurrent(torch.rnn_tanh, 1, False),
    "rnn_relu": _recurrent(torch.rnn_relu, 1, False),
    "gru": _recurrent(torch.gru, 3, False),
    "lstm": _recurrent(torch.lstm, 4, False),
    "rnn_tanh_cell": _recurrent(torch.rnn_tanh_cell, 1, True),
    "rnn_relu_cell": _recurrent(torch.rnn_relu_cell, 1, True),
    "gru_cell": _recurrent(torch.gru_cell, 3, True),
    "lstm_cell": _recurrent(torch.lstm_cell, 4, True),
}

IMAGES = (2, 2, 3)
NORMALISATION = {
    "batch_norm of statistics": (
        lambda x, m, v, w, b: F.batch_norm(x, m, v.abs(), w, b, False),
        [IMAGES, V, V, V, V],
    ),
    "batch_norm without parameters": (
        lambda x, m, v: F.batch_norm(x, m, v.abs(), None, None, True),
        [IMAGES, V, V],
    ),
    "instance_norm": (lambda x, w, b: F.instance_norm(x, None, None, w, b), [IMAGES, V, V]),
    "instance_norm with statistics": (
        lambda x, m, v, w, b: F.instance_norm(x, m, v.abs(), w, b, False),
        [IMAGES, V, V, V, V],
    ),
    "rms_norm": (lambda x, w: F.rms_norm(x, (3,), w), [IMAGES, (3,)]),
}

# Indices of mixed operands that some stock kernels accept without a check and others refuse,
# depending on the number of dimensions and on oneDNN. Format tensors are refused in all of them, so
# that these cases may differ.
BY_ACCIDENT = {
    "conv_transpose1d": {2},
    "conv_transpose2d": {2},
    "conv_transpose3d": {2},
    "conv_tbc": {2},
    "instance_norm with statistics": {1, 2, 3, 4},
}

# Statistics have no gradients.
WITH_STATISTICS = [
    name for name in NORMALISATION if name.startswith("batch_norm") or "statistics" in name
]

ALL = {**PRODUCTS, **CONVOLUTIONS, **ATTENTION, **RECURRENT, **NORMALISATION}


def operands(shapes, dtypes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator).to(d) for s, d in zip(shapes, dtypes, strict=True)]


def mixtures(name):
    """Return the mixtures of dtypes: all for a few operands, or for many each operand in one dtype
    among the others."""
    n = len(ALL[name][1])
    if n <= 5:
        every = itertools.product((False, True), repeat=n)
    else:
        every = [
            tuple((i == j) is one for i in range(n)) for j in range(n) for one in (True, False)
        ]
    accidents = BY_ACCIDENT.get(name, set())

    def is_kept(mixture):
        left = {m for i, m in enumerate(mixture) if i not in accidents or i == 0}
        return len(set(mixture)) == 2 and not (
            accidents and (len(left) == 1 or accidents == {1, 2, 3, 4})
        )

    return [m for m in every if is_kept(m)]
