"""Calls of every operator family whose operands stock wants in one dtype: a function of its floating operands, and their shapes."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F


def _loaded(layer, names):
    """A layer as a function of its input, further inputs, and the parameters of these names."""

    def call(*operands):
        inputs, parameters = operands[: len(operands) - len(names)], operands[len(operands) - len(names) :]
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), inputs)

    return call


def _of_layer(layer, *inputs):
    names = [n for n, _ in layer.named_parameters()]
    return _loaded(layer, names), [*inputs, *(tuple(p.shape) for _, p in layer.named_parameters())]


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
    "mm": (torch.mm, [M, M]),
    "bmm": (torch.bmm, [B, B]),
    "mv": (torch.mv, [M, V]),
    "dot": (torch.dot, [V, V]),
    "vdot": (torch.vdot, [V, V]),
    "inner": (torch.inner, [M, M]),
    "inner of vectors": (torch.inner, [V, V]),
    "inner with a number": (torch.inner, [V, ()]),
    "outer": (torch.outer, [V, V]),
    "ger": (torch.ger, [V, V]),
    "kron": (torch.kron, [M, M]),
    "cross": (lambda a, b: torch.linalg.cross(a, b), [(3,), (3,)]),
    "vecdot": (torch.linalg.vecdot, [M, M]),
    "matmul of matrices": (torch.matmul, [M, M]),
    "matmul of batches": (torch.matmul, [B, B]),
    "matmul of batch and matrix": (torch.matmul, [B, M]),
    "matmul of matrix and batch": (torch.matmul, [M, B]),
    "matmul of matrix and vector": (torch.matmul, [M, V]),
    "matmul of vector and matrix": (torch.matmul, [V, M]),
    "matmul of vectors": (torch.matmul, [V, V]),
    "@": (lambda a, b: a @ b, [M, M]),
    "addmm": (torch.addmm, [M, M, M]),
    "addmm_": (lambda a, b, c: a.clone().addmm_(b, c), [M, M, M]),
    "addmm with beta 0": (lambda a, b, c: torch.addmm(a, b, c, beta=0), [M, M, M]),
    "addmv": (torch.addmv, [V, M, V]),
    "addr": (torch.addr, [M, V, V]),
    "baddbmm": (torch.baddbmm, [B, B, B]),
    "addbmm": (torch.addbmm, [M, B, B]),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), [M, M]),
    "tensordot of all": (lambda a, b: torch.tensordot(a, b, 2), [M, M]),
    "einsum": (lambda a, b: torch.einsum("ij,jk->ik", a, b), [M, M]),
    "einsum of three": (lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), [M, M, M]),
    "einsum by elements": (lambda a, b: torch.einsum("ij,ij->ij", a, b), [M, M]),
    "chain_matmul": (lambda a, b, c: torch.linalg.multi_dot([a, b, c]), [M, M, M]),
    "multi_dot": (lambda a, b: torch.linalg.multi_dot([a, b]), [M, M]),
    "bilinear": (F.bilinear, [M, M, B, V]),
    "linear": (F.linear, [M, M, V]),
    "linear without bias": (F.linear, [M, M]),
    "linear of batches": (F.linear, [B, M, V]),
    "linear of a vector": (F.linear, [V, M, V]),
    "cosine_similarity": (F.cosine_similarity, [M, M]),
    "pairwise_distance": (F.pairwise_distance, [M, M]),
}

CONVOLUTIONS = {}
for _d, _conv, _transposed in ((1, F.conv1d, F.conv_transpose1d), (2, F.conv2d, F.conv_transpose2d), (3, F.conv3d, F.conv_transpose3d)):
    for _name, _f in ((f"conv{_d}d", _conv), (f"conv_transpose{_d}d", _transposed)):
        _image, _kernel = (1, 2, *[4] * _d), (2, 2, *[3] * _d)
        CONVOLUTIONS[_name] = (_f, [_image, _kernel, V])
        CONVOLUTIONS[f"{_name} without bias"] = (_f, [_image, _kernel])
CONVOLUTIONS["conv2d of one image"] = (F.conv2d, [(2, 4, 4), (2, 2, 3, 3), V])
CONVOLUTIONS["conv2d, padding same"] = (lambda x, w: F.conv2d(x, w, padding="same"), [(1, 2, 4, 4), (2, 2, 3, 3)])
CONVOLUTIONS["conv2d of groups"] = (lambda x, w: F.conv2d(x, w, groups=2), [(1, 2, 4, 4), (2, 1, 3, 3)])
CONVOLUTIONS["convolution"] = (lambda x, w: torch.convolution(x, w, None, [1], [0], [1], False, [0], 1), [(1, 2, 4), (2, 2, 3)])
CONVOLUTIONS["conv_tbc"] = (torch.conv_tbc, [(4, 1, 2), (3, 2, 2), V])
CONVOLUTIONS["fold"] = (lambda x, w: F.fold(F.unfold(x, 2).mul(w), (3, 3), 2), [(1, 1, 3, 3), ()])

ATTENTION = {
    "scaled_dot_product_attention": (F.scaled_dot_product_attention, [B, B, B]),
    "attention of heads": (F.scaled_dot_product_attention, [(1, 2, 2, 2)] * 3),
    "attention with a mask": (F.scaled_dot_product_attention, [B, B, B, M]),
    "MultiheadAttention": _of_layer(nn.MultiheadAttention(2, 1), B, B, B),
    "TransformerEncoderLayer": _of_layer(nn.TransformerEncoderLayer(2, 1, 2, 0.0), B),
}

RECURRENT = {
    "rnn_tanh": _recurrent(torch.rnn_tanh, 1, False), "rnn_relu": _recurrent(torch.rnn_relu, 1, False), "gru": _recurrent(torch.gru, 3, False),
    "lstm": _recurrent(torch.lstm, 4, False), "rnn_tanh_cell": _recurrent(torch.rnn_tanh_cell, 1, True),
    "rnn_relu_cell": _recurrent(torch.rnn_relu_cell, 1, True), "gru_cell": _recurrent(torch.gru_cell, 3, True),
    "lstm_cell": _recurrent(torch.lstm_cell, 4, True),
}  # fmt: skip


def _bag(mode):
    def call(weight, *per_sample):
        indices = torch.tensor([0, 1, 1, 0])
        return F.embedding_bag(indices, weight, torch.tensor([0, 2]), mode=mode, per_sample_weights=per_sample[0] if per_sample else None)

    return call


IMAGES = (2, 2, 3)
NORMALISATION = {
    "batch_norm": (lambda x, m, v, w, b: F.batch_norm(x, m, v.abs(), w, b, True), [IMAGES, V, V, V, V]),
    "batch_norm of statistics": (lambda x, m, v, w, b: F.batch_norm(x, m, v.abs(), w, b, False), [IMAGES, V, V, V, V]),
    "batch_norm without parameters": (lambda x, m, v: F.batch_norm(x, m, v.abs(), None, None, True), [IMAGES, V, V]),
    "batch_norm without statistics": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [IMAGES, V, V]),
    "instance_norm": (lambda x, w, b: F.instance_norm(x, None, None, w, b), [IMAGES, V, V]),
    "instance_norm with statistics": (lambda x, m, v, w, b: F.instance_norm(x, m, v.abs(), w, b, False), [IMAGES, V, V, V, V]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 1, w, b), [IMAGES, V, V]),
    "group_norm of weights alone": (lambda x, w: F.group_norm(x, 1, w), [IMAGES, V]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (3,), w, b), [IMAGES, (3,), (3,)]),
    "layer_norm of weights alone": (lambda x, w: F.layer_norm(x, (3,), w), [IMAGES, (3,)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (3,), w), [IMAGES, (3,)]),
}

OTHERS = {
    "embedding_bag": (_bag("sum"), [(2, 3), (4,)]),
    "prelu": (F.prelu, [IMAGES, V]),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), [(1, 1, 3, 3), (1, 2, 2, 2)]),
    "conv then add": (lambda x, w: F.conv1d(x, w) + 1, [(1, 2, 4), (2, 2, 3)]),
}

# Mixed operands that some of stock's kernels take and others refuse (by the number of dimensions, and with or without oneDNN), because
# they do not look: the places that may differ. Ours refuse them all.
BY_ACCIDENT = {
    "conv_transpose1d": {2}, "conv_transpose2d": {2}, "conv_transpose3d": {2}, "conv_tbc": {2}, "instance_norm with statistics": {1, 2, 3, 4},
}  # fmt: skip

# Statistics have no gradients.
WITH_STATISTICS = [name for name in NORMALISATION if "statistics" in name or name in ("batch_norm", "batch_norm without parameters")]

ALL = {**PRODUCTS, **CONVOLUTIONS, **ATTENTION, **RECURRENT, **NORMALISATION, **OTHERS}


def operands(shapes, dtypes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator).to(d) for s, d in zip(shapes, dtypes, strict=True)]


def mixtures(name):
    """Which operands are of the narrow dtype: all mixtures of a few, and of many each one by itself among the others."""
    n = len(ALL[name][1])
    if n <= 5:
        every = itertools.product((False, True), repeat=n)
    else:
        every = [tuple((i == j) is one for i in range(n)) for j in range(n) for one in (True, False)]
    accidents = BY_ACCIDENT.get(name, set())

    def kept(mixture):
        left = {m for i, m in enumerate(mixture) if i not in accidents or i == 0}
        return len(set(mixture)) == 2 and not (accidents and (len(left) == 1 or accidents == {1, 2, 3, 4}))

    return [m for m in every if kept(m)]
