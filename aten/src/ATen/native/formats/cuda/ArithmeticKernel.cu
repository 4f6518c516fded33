// + - * / sqrt and fused multiply-add: decoded, computed to odd in float32 or float64, rounded once.
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/Kernels.h>
#include <ATen/native/formats/cuda/Odd.h>

#include <bit>
#include <utility>

namespace at::formats::cuda {
namespace {

// ---- operators: of values in T, and of float32 values with a number ----

struct Binary {
  static constexpr int kInputs = 2;
  BinaryOp op;
  bool number_first;
  double number;
  ZeroSigns signs;

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

// To nearest, where the sign of a sum that is 0 is the machine's.
template <BinaryOp op>
struct NearestBinary {
  static constexpr int kInputs = 2;
  TD_HOST_DEVICE float operator()(const float* x) const { return binary_odd(op, x[0], x[1]); }
};

struct Ternary {
  static constexpr int kInputs = 3;
  TernaryOp op;
  double s, number;
  ZeroSigns signs;

  template <typename T>
  TD_HOST_DEVICE T operator()(const T* x) const {
    return signs.of(op, x[0], x[1], x[2], static_cast<T>(s), ternary_odd(op, x[0], x[1], x[2], static_cast<T>(s)));
  }
  TD_HOST_DEVICE c10::formats::MixedResult mixed(const float* x) const {
    auto r = ternary_mixed(op, x[0], x[1], x[2], number);
    r.value = signs.of(op, x[0], x[1], x[2], static_cast<float>(s), r.value);
    return r;
  }
};

struct NearestTernary {
  static constexpr int kInputs = 3;
  TernaryOp op;
  float s;
  TD_HOST_DEVICE float operator()(const float* x) const { return ternary_odd(op, x[0], x[1], x[2], s); }
};

struct Root {
  static constexpr int kInputs = 1;

  template <typename T>
  TD_HOST_DEVICE T operator()(const T* x) const {
    return c10::formats::sqrt_odd(x[0]);
  }
  TD_HOST_DEVICE c10::formats::MixedResult mixed(const float* x) const { return {x[0], ~0U}; }
};

// ---- one element ----

template <typename T, typename Op>
struct Direct {
  using Number = T;
  Op op;
  Encoder<T> encode;
  Direct(const Elementwise& e, const Op& op) : op(op), encode(e.result, {e.seed}) {}
  TD_HOST_DEVICE uint64_t operator()(const T* x, uint64_t word) const { return encode.at_word(with_plain_nan(op(x)), word); }
};

template <typename Op>
struct Mixed {
  using Number = float;
  Op op;
  Encoder<float> encode;
  Encoder<double> encode_wide;
  double numbers[Op::kInputs];
  bool is_number[Op::kInputs];
  Mixed(const Elementwise& e, const Op& op) : op(op), encode(e.result, {e.seed}), encode_wide(e.result, {e.seed}) {
    for (int j = 0; j < Op::kInputs; ++j) {
      is_number[j] = !e.inputs[j].data;
      numbers[j] = e.inputs[j].number;
    }
  }
  TD_HOST_DEVICE uint64_t operator()(const float* x, uint64_t word) const {
    const c10::formats::MixedResult r = op.mixed(x);
    if (!r.undecided) return encode.at_word(with_plain_nan(r.value), word);
    double wide[Op::kInputs];
    for (int j = 0; j < Op::kInputs; ++j) wide[j] = is_number[j] ? numbers[j] : static_cast<double>(x[j]);
    return encode_wide.at_word(with_plain_nan(op(wide)), word);
  }
};

// ---- where elements lie ----

// Everything contiguous, and all codes of one format that has a codec.
template <typename Op, typename Codec, typename Code>
struct Flat {
  static constexpr int N = Op::kInputs;
  using Quick = QuickCodec<Codec, Code>;
  using Shared = typename Quick::Shared;
  const Code* in[N];
  float numbers[N];
  Code* out;
  Quick codec;
  Op op;

  Flat(const Elementwise& e, const Codec& codec, const Op& op) : out(static_cast<Code*>(e.out)), codec(e.result, codec), op(op) {
    for (int j = 0; j < N; ++j) {
      in[j] = static_cast<const Code*>(e.inputs[j].data);
      numbers[j] = static_cast<float>(e.inputs[j].number);
    }
  }

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const { codec.prepare(shared, thread, threads); }

  template <int width>
  TD_HOST_DEVICE void run(const Shared& shared, int64_t i) const {
    using Codes = Pack<Code, width>;
    float x[width][N], exact[width];
    for (int j = 0; j < N; ++j) {
      if (in[j]) {
        const auto codes = *reinterpret_cast<const Codes*>(in[j] + i);
        for (int l = 0; l < width; ++l) x[l][j] = codec.decode(codes, l, shared);
      } else {
        for (int l = 0; l < width; ++l) x[l][j] = numbers[j];
      }
    }
    for (int l = 0; l < width; ++l) exact[l] = op(x[l]);
    Codes results;
    codec.encode(exact, results.at, shared);
    *reinterpret_cast<Codes*>(out + i) = results;
  }
};

// One operand of any kind.
template <typename T>
struct Source {
  const char* data;
  int width;
  bool is_code;
  T number;
  Decoder<T> decode;

  explicit Source(const Input& input)
      : data(static_cast<const char*>(input.data)),
        width(input.format ? input.format->itemsize() : static_cast<int>(sizeof(double))),
        is_code(input.format),
        number(static_cast<T>(input.number)),
        decode(input.format ? *input.format : c10::formats::float_format(11, 52)) {} // any but none, where it decodes nothing

  TD_HOST_DEVICE T at(int64_t offset) const {
    if (!data) return number;
    if (!is_code) return static_cast<T>(*reinterpret_cast<const double*>(data + offset));
    return decode(static_cast<typename Machine<T>::Bits>(code_at(data + offset, width)));
  }
};

// Any strides, any kinds of operands.
template <typename Each, int N>
struct Strided {
  using T = typename Each::Number;
  Layout layout;
  Source<T> in[N];
  char* out;
  int width;
  int width_bits; // width is 1 << width_bits: of an offset in bytes the element's place, without a division
  bool short_indices;
  Each each;

  template <typename Index>
  TD_HOST_DEVICE void offsets_of(Index i, int64_t* offsets) const {
    if (layout.dims == 1) { // no division
      for (int j = 0; j <= N; ++j) offsets[j] = static_cast<int64_t>(i) * layout.strides[j][0];
      return;
    }
    for (int d = 0; d < layout.dims; ++d) {
      const auto size = static_cast<Index>(layout.sizes[d]);
      const Index next = i / size, rest = i - next * size;
      for (int j = 0; j <= N; ++j) offsets[j] += static_cast<int64_t>(rest) * layout.strides[j][d];
      i = next;
    }
  }

  TD_HOST_DEVICE void operator()(int64_t i) const {
    int64_t offsets[N + 1] = {};
    if (short_indices) offsets_of(static_cast<uint32_t>(i), offsets);
    else offsets_of(static_cast<uint64_t>(i), offsets);
    T x[N];
    for (int j = 0; j < N; ++j) x[j] = in[j].at(offsets[j + 1]);
    put_code(out + offsets[0], width, each(x, static_cast<uint64_t>(offsets[0]) >> width_bits));
  }
};

// The layout with a row of strides for each operand, numbers' being 0; where all is contiguous, as one dimension.
Layout with_rows(const Elementwise& e, int inputs) {
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
      const int64_t width = input.format ? input.format->itemsize() : static_cast<int64_t>(sizeof(double));
      all.strides[j + 1][d] = !input.data ? 0 : contiguous ? width : e.layout.strides[row][d];
    }
    row += input.data != nullptr;
  }
  return all;
}

template <typename Each, size_t... j>
Status run_strided(const Elementwise& e, const Each& each, Stream stream, std::index_sequence<j...>) {
  constexpr int N = sizeof...(j);
  using T = typename Each::Number;
  const int width = e.result.itemsize();
  const Strided<Each, N> body{with_rows(e, N),
                              {Source<T>(e.inputs[j])...},
                              static_cast<char*>(e.out),
                              width,
                              std::countr_zero(static_cast<unsigned>(width)),
                              e.n < (int64_t{1} << 31),
                              each};
  return for_each(e.n, stream, body);
}

// Whether float32 computes it, all is contiguous, and what is no number is of the results' format, which has a codec.
bool is_flat(const Elementwise& e, int inputs) {
  bool flat = e.in == Arithmetic::Float && e.layout.dims == 0 && has_quick_codec(e.result);
  for (int j = 0; j < inputs; ++j) flat = flat && (!e.inputs[j].data || (e.inputs[j].format && *e.inputs[j].format == e.result));
  return flat;
}

template <typename Op>
Status run_flat(const Elementwise& e, const Op& op, Stream stream) {
  return with_codec(e.result, [&](const auto& codec, auto code) {
    using Code = decltype(code);
    bool aligned = is_aligned(e.out, 4 * sizeof(Code));
    for (int j = 0; j < Op::kInputs; ++j) aligned = aligned && is_aligned(e.inputs[j].data, 4 * sizeof(Code));
    return for_each_packed(e.n, aligned, stream, Flat<Op, std::decay_t<decltype(codec)>, Code>(e, codec, op));
  });
}

template <typename Op>
Status run(const Elementwise& e, const Op& op, Stream stream) {
  constexpr auto inputs = std::make_index_sequence<Op::kInputs>();
  switch (e.in) {
    case Arithmetic::Float: return run_strided(e, Direct<float, Op>(e, op), stream, inputs);
    case Arithmetic::Mixed: return run_strided(e, Mixed<Op>(e, op), stream, inputs);
    default: return run_strided(e, Direct<double, Op>(e, op), stream, inputs);
  }
}

Status binary(const Elementwise& e, BinaryOp op, Stream stream) {
  if (is_flat(e, 2)) {
    switch (op) {
      case BinaryOp::Add: return run_flat(e, NearestBinary<BinaryOp::Add>{}, stream);
      case BinaryOp::Sub: return run_flat(e, NearestBinary<BinaryOp::Sub>{}, stream);
      case BinaryOp::Mul: return run_flat(e, NearestBinary<BinaryOp::Mul>{}, stream);
      case BinaryOp::Div: return run_flat(e, NearestBinary<BinaryOp::Div>{}, stream);
    }
  }
  const bool number_first = !e.inputs[0].data;
  return run(e, Binary{op, number_first, e.inputs[number_first ? 0 : 1].number, ZeroSigns(e.result.rounding)}, stream);
}

Status ternary(const Elementwise& e, TernaryOp op, double s, Stream stream) {
  const double number = op == TernaryOp::Fma ? e.inputs[0].number : op == TernaryOp::Lerp ? e.inputs[2].number : s;
  if (is_flat(e, 3)) return run_flat(e, NearestTernary{op, static_cast<float>(s)}, stream);
  return run(e, Ternary{op, s, number, ZeroSigns(e.result.rounding)}, stream);
}

Status square_roots(const Elementwise& e, Stream stream) {
  return is_flat(e, 1) ? run_flat(e, Root{}, stream) : run(e, Root{}, stream);
}

} // namespace

void fill_arithmetic(CudaKernels& k) {
  k.binary = &binary;
  k.ternary = &ternary;
  k.sqrt = &square_roots;
}

} // namespace at::formats::cuda
