// The loops of RecurrentSteps.h, forward and backward, on float32 values.
#pragma once
#include <ATen/FormatRounding.h>
#include <ATen/native/formats/overlay/RecurrentLoops.h>
#include <ATen/native/formats/overlay/RecurrentSteps.h>

#include <optional>
#include <vector>

namespace at::formats {

// Sizes, operands as float32 and scratch memory that both directions need.
struct RecurrentScan {
  const FormatEntry& entry;
  const RecurrentLoops loops;
  const bool is_lstm, backwards;
  const int64_t batch, features, rows, steps, planes, plane, wide; // plane, wide: elements
  const at::Tensor weight, h0;
  const float* c0{nullptr};

  RecurrentScan(const Recurrence& r, const FormatEntry& e)
      : entry(e),
        loops(rounding_format(e)),
        is_lstm(r.cell == Cell::Lstm),
        backwards(r.backwards),
        batch(r.h.size(0)),
        features(r.h.size(1)),
        rows(is_lstm ? 4 : 3),
        steps(r.inputs.size(0) / batch),
        planes(is_lstm ? 7 : 6),
        plane(batch * features),
        wide(rows * plane),
        weight(decoded(r.weight)),
        h0(decoded(r.h)) {
    if (!is_lstm) return;
    c0_ = decoded(r.c);
    c0 = c0_.const_data_ptr<float>();
  }
  int64_t time(int64_t i) const { return backwards ? steps - 1 - i : i; } // of the i-th step to run
  template <typename Byte>
  Byte* step_codes(Byte* codes, int64_t i, int64_t elements) const {
    return codes + time(i) * elements * entry.format.itemsize();
  }

 private:
  at::Tensor c0_;
};

// Memory for what the steps keep for the backward pass: (steps, planes, batch, features). If
// nothing is recorded, two steps take turns.
at::Tensor kept_memory(const RecurrentScan& scan, bool recorded);

// Runs all steps. Returns nothing if there is NaN.
std::optional<RecurrentResult> run_forward(const Recurrence& operands, const RecurrentScan& scan,
                                           const at::Tensor& kept);

// Returns the gradients of inputs, h, c, weight and bias, or nothing if there is NaN. gradients: of
// outputs, h and c, each possibly undefined.
std::optional<std::vector<at::Tensor>> run_backward(const RecurrentScan& scan,
                                                    const at::Tensor& kept,
                                                    const std::vector<at::Tensor>& gradients,
                                                    bool of_weight, bool of_bias);

} // namespace at::formats
