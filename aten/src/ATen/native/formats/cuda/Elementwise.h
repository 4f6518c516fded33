// Parts of elementwise kernels: the computation of one element, and the addresses of elements.
#pragma once
#include <ATen/native/formats/cuda/Kernels.h>
#include <ATen/native/formats/cuda/Odd.h>

namespace at::formats::cuda {

// ---- operators: of values in T, and of float32 values with a number ----

struct Binary {
  static constexpr int kInputs = 2;
  BinaryOp op;
  bool number_first;
  double number;
  ZeroSigns signs;

  Binary(const Elementwise& e, BinaryOp op)
      : op(op),
        number_first(!e.inputs[0].data),
        number(e.inputs[number_first ? 0 : 1].number),
        signs(e.result.rounding) {}

  template <typename T>
  TD_HOST_DEVICE T operator()(const T* x) const {
    return signs.of(op, x[0], x[1], binary_odd(op, x[0], x[1]));
  }
  TD_HOST_DEVICE c10::formats::MixedResult mixed(const float* x) const {
    auto r = binary_mixed(op, number_first, number_first ? x[1] : x[0], number);
    r.value = signs.of(op, x[0], x[1], r.value);
    return r;
  }
};

struct Ternary {
  static constexpr int kInputs = 3;
  TernaryOp op;
  double s, number;
  ZeroSigns signs;

  static double number_of(const Elementwise& e, TernaryOp op, double s) {
    using c10::formats::operations::Place;
    const Place place = with_operation(op, [](auto f) { return f.kNumber; });
    if (place == Place::A) return e.inputs[0].number;
    return place == Place::C ? e.inputs[2].number : s;
  }

  Ternary(const Elementwise& e, TernaryOp op, double s)
      : op(op),
        s(s),
        number(number_of(e, op, s)),
        signs(e.result.rounding) {}

  template <typename T>
  TD_HOST_DEVICE T operator()(const T* x) const {
    return signs.of(op, x[0], x[1], x[2], static_cast<T>(s),
                    ternary_odd(op, x[0], x[1], x[2], static_cast<T>(s)));
  }
  TD_HOST_DEVICE c10::formats::MixedResult mixed(const float* x) const {
    auto r = ternary_mixed(op, x[0], x[1], x[2], number);
    r.value = signs.of(op, x[0], x[1], x[2], static_cast<float>(s), r.value);
    return r;
  }
};

struct Unary {
  static constexpr int kInputs = 1;
  UnaryOp op;

  template <typename T>
  TD_HOST_DEVICE T operator()(const T* x) const {
    return unary_odd(op, x[0]);
  }
  TD_HOST_DEVICE c10::formats::MixedResult mixed(const float* x) const { return {x[0], ~0U}; }
};

// ---- addresses of elements ----

// The layout with a row of strides for each operand; a number's strides are 0. Contiguous operands
// become one dimension.
inline Layout with_rows(const Elementwise& e, int inputs) {
  Layout all = e.layout;
  const bool contiguous = all.dims == 0;
  if (contiguous) {
    all.dims = 1;
    all.sizes[0] = e.n;
    all.strides[0][0] = e.result.itemsize();
  }
  for (int j = 0, row = 1; j < inputs; ++j) {
    const Input& input = e.inputs[j];
    for (int d = 0; d < all.dims; ++d) {
      const int64_t width =
          input.format ? input.format->itemsize() : static_cast<int64_t>(sizeof(double));
      if (!input.data) all.strides[j + 1][d] = 0;
      else all.strides[j + 1][d] = contiguous ? width : e.layout.strides[row][d];
    }
    row += input.data != nullptr;
  }
  return all;
}

// The offsets in bytes of element i in each operand.
template <int operands>
struct Offsets {
  Layout layout;
  bool short_indices;

  Offsets(const Layout& layout, int64_t n)
      : layout(layout),
        short_indices(n < (int64_t{1} << 31)) {}

  TD_INLINE void of(int64_t i, int64_t (&offsets)[operands]) const {
    if (short_indices) by_index(static_cast<uint32_t>(i), offsets);
    else by_index(static_cast<uint64_t>(i), offsets);
  }

 private:
  template <typename Index>
  TD_HOST_DEVICE void by_index(Index i, int64_t (&offsets)[operands]) const {
    for (int j = 0; j < operands; ++j) offsets[j] = 0;
    if (layout.dims == 1) { // no division
      for (int j = 0; j < operands; ++j)
        offsets[j] = static_cast<int64_t>(i) * layout.strides[j][0];
      return;
    }
    for (int d = 0; d < layout.dims; ++d) {
      const auto size = static_cast<Index>(layout.sizes[d]);
      const Index next = i / size, rest = i - next * size;
      for (int j = 0; j < operands; ++j)
        offsets[j] += static_cast<int64_t>(rest) * layout.strides[j][d];
      i = next;
    }
  }
};

// ---- for the most common formats (PackedArithmeticKernel.cu) ----

bool serves_packed(const Elementwise& e, int inputs);
Status packed_binary(const Elementwise& e, BinaryOp op, Stream stream);
Status packed_ternary(const Elementwise& e, TernaryOp op, double s, Stream stream);
Status packed_unary(const Elementwise& e, UnaryOp op, Stream stream);

} // namespace at::formats::cuda
