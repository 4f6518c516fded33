"""Results of a GPU's fused recurrent cells, without values: PyTorch has no rule for GRU's, and for LSTM's one that asks for biases."""

from __future__ import annotations

import torch

aten = torch.ops.aten
_GRU_NUMBERS = 5  # that a GRU's cell keeps for backward, of each hidden one, which has three gates


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _lstm(input_gates, hidden_gates, cx, input_bias, hidden_bias):
    return _like(cx), _like(cx), _like(input_gates)


def _lstm_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    return _like(workspace), _like(cx), workspace.new_empty(workspace.shape[1:]) if has_bias else None


def _gru(input_gates, hidden_gates, hx, input_bias, hidden_bias):
    return _like(hx), hx.new_empty(hx.shape[0], _GRU_NUMBERS * hx.shape[1])


def _gru_backward(grad_hy, workspace, has_bias):
    gates = 3 * (workspace.shape[1] // _GRU_NUMBERS)
    biases = [workspace.new_empty(gates) if has_bias else None for _ in range(2)]
    return *(workspace.new_empty(workspace.shape[0], gates) for _ in range(2)), _like(grad_hy), *biases


OUTCOMES = {
    aten._thnn_fused_lstm_cell.default: _lstm,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_backward,
    aten._thnn_fused_gru_cell.default: _gru,
    aten._thnn_fused_gru_cell_backward.default: _gru_backward,
}
