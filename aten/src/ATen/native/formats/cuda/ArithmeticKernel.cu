// + - * / sqrt and fused multiply-add: decode, compute to odd in float32 or float64, round once.
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/Elementwise.h>

#include <bit>
#include <utility>

namespace at::formats::cuda {
namespace {

// ---- one element ----

template <typename T, typename Op>
struct Direct {
  using Number = T;
  Op op;
  Encoder<T> encode;
  Direct(const Elementwise& e, const Op& op) : op(op), encode(e.result, {e.seed}) {}
  TD_HOST_DEVICE uint64_t operator()(const T* x, uint64_t word) const {
    return encode.at_word(with_plain_nan(op(x)), word);
  }
};

template <typename Op>
struct Mixed {
  using Number = float;
  Op op;
  Encoder<float> encode;
  Encoder<double> encode_wide;
  double numbers[Op::kInputs];
  bool is_number[Op::kInputs];
  Mixed(const Elementwise& e, const Op& op)
      : op(op),
        encode(e.result, {e.seed}),
        encode_wide(e.result, {e.seed}) {
    for (int j = 0; j < Op::kInputs; ++j) {
      is_number[j] = !e.inputs[j].data;
      numbers[j] = e.inputs[j].number;
    }
  }
  TD_HOST_DEVICE uint64_t operator()(const float* x, uint64_t word) const {
    const c10::formats::MixedResult r = op.mixed(x);
    if (!r.undecided) return encode.at_word(with_plain_nan(r.value), word);
    double wide[Op::kInputs];
    for (int j = 0; j < Op::kInputs; ++j)
      wide[j] = is_number[j] ? numbers[j] : static_cast<double>(x[j]);
    return encode_wide.at_word(with_plain_nan(op(wide)), word);
  }
};

// ---- addresses of elements ----

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
        // Without a format nothing is decoded, and any decoder will do.
        decode(input.format ? *input.format : c10::formats::float_format(11, 52)) {}

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
  Offsets<N + 1> places;
  Source<T> in[N];
  char* out;
  int width;
  // The width is 1 << width_bits: turns an offset in bytes into an index without a division.
  int width_bits;
  Each each;

  TD_HOST_DEVICE void operator()(int64_t i) const {
    int64_t offsets[N + 1];
    places.of(i, offsets);
    T x[N];
    for (int j = 0; j < N; ++j) x[j] = in[j].at(offsets[j + 1]);
    put_code(out + offsets[0], width, each(x, static_cast<uint64_t>(offsets[0]) >> width_bits));
  }
};

template <typename Each, size_t... j>
Status run_strided(const Elementwise& e, const Each& each, Stream stream,
                   std::index_sequence<j...>) {
  constexpr int N = sizeof...(j);
  using T = typename Each::Number;
  const int width = e.result.itemsize();
  const Strided<Each, N> body{Offsets<N + 1>(with_rows(e, N), e.n),
                              {Source<T>(e.inputs[j])...},
                              static_cast<char*>(e.out),
                              width,
                              std::countr_zero(static_cast<unsigned>(width)),
                              each};
  return for_each(e.n, stream, body);
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
  if (serves_packed(e, 2)) return packed_binary(e, op, stream);
  return run(e, Binary(e, op), stream);
}

Status ternary(const Elementwise& e, TernaryOp op, double s, Stream stream) {
  if (serves_packed(e, 3)) return packed_ternary(e, op, s, stream);
  return run(e, Ternary(e, op, s), stream);
}

Status unary(const Elementwise& e, UnaryOp op, Stream stream) {
  return serves_packed(e, 1) ? packed_unary(e, op, stream) : run(e, Unary{op}, stream);
}

} // namespace

void fill_arithmetic(CudaKernels& k) {
  k.binary = &binary;
  k.ternary = &ternary;
  k.unary = &unary;
}

} // namespace at::formats::cuda
