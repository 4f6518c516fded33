// Arithmetic for the most common formats (PackedCodec.h), computed to odd in float32: several
// elements a thread, with the format's own codec.
#include <ATen/native/formats/cuda/Elementwise.h>
#include <ATen/native/formats/cuda/PackedCodec.h>

namespace at::formats::cuda {
namespace {

// ---- operators, if the sign of a sum that is 0 is the machine's ----

// To nearest, each operator has a kernel: choosing at run time would cost a tenth of its time.
template <BinaryOp op>
struct OneBinary {
  static constexpr int kInputs = 2;
  TD_HOST_DEVICE float operator()(const float* x) const { return binary_odd(op, x[0], x[1]); }
};

struct AnyBinary {
  static constexpr int kInputs = 2;
  BinaryOp op;
  TD_HOST_DEVICE float operator()(const float* x) const { return binary_odd(op, x[0], x[1]); }
};

struct AnyTernary {
  static constexpr int kInputs = 3;
  TernaryOp op;
  float s;
  TD_HOST_DEVICE float operator()(const float* x) const {
    return ternary_odd(op, x[0], x[1], x[2], s);
  }
};

// ---- operands and results ----

template <typename Op, typename Codec, typename Code>
struct Operands {
  static constexpr int N = Op::kInputs;
  const Code* in[N];
  float numbers[N];
  Code* out;
  Codec codec;
  Op op;

  Operands(const Elementwise& e, const Codec& codec, const Op& op)
      : out(static_cast<Code*>(e.out)),
        codec(codec),
        op(op) {
    for (int j = 0; j < N; ++j) {
      in[j] = static_cast<const Code*>(e.inputs[j].data);
      numbers[j] = static_cast<float>(e.inputs[j].number);
    }
  }

  // Decodes `width` elements of each operand. load_from(j): the codes of operand j.
  template <int width, typename Load>
  TD_INLINE void decode(const typename Codec::Shared& shared, const Load& load_from,
                        float (&x)[width][N]) const {
    for (int j = 0; j < N; ++j) {
      if (in[j]) {
        const Pack<Code, width> codes = load_from(j);
        for (int l = 0; l < width; ++l) x[l][j] = codec.decode(codes, l, shared);
      } else {
        for (int l = 0; l < width; ++l) x[l][j] = numbers[j];
      }
    }
  }
  template <int width, typename Load>
  TD_INLINE void compute(const typename Codec::Shared& shared, const Load& load_from,
                         float (&exact)[width]) const {
    float x[width][N];
    decode(shared, load_from, x);
    for (int l = 0; l < width; ++l) exact[l] = op(x[l]);
  }
};

// All operands are contiguous.
template <typename Op, typename Codec, typename Code>
struct Flat {
  using Shared = typename Codec::Shared;
  Operands<Op, Codec, Code> operands;

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    operands.codec.prepare(shared, thread, threads);
  }

  template <int width>
  TD_HOST_DEVICE void run(const Shared& shared, int64_t i) const {
    float exact[width];
    operands.compute(shared, [this, i](int j) { return load<width>(operands.in[j] + i); }, exact);
    Pack<Code, width> results;
    operands.codec.encode(exact, results.at, shared);
    store(operands.out + i, results);
  }
  TD_HOST_DEVICE void run(const Shared& shared, int64_t i, const Draw& draw) const {
    float exact[kOfBlock];
    operands.compute(
        shared, [this, i, &draw](int j) { return load_apart(operands.in[j] + i, draw); }, exact);
    Pack<Code, kOfBlock> results;
    operands.codec.encode(exact, draw, results.at);
    store_apart(operands.out + i, results, draw);
  }
};

// Contiguous tensors and one float64 number.
template <typename Op, typename Codec, typename Code>
struct FlatMixed {
  using Shared = typename Codec::Shared;
  static constexpr int N = Op::kInputs;
  Operands<Op, Codec, Code> operands;
  Format format;
  double numbers[N];

  FlatMixed(const Elementwise& e, const Codec& codec, const Op& op)
      : operands(e, codec, op),
        format(e.result) {
    for (int j = 0; j < N; ++j) numbers[j] = e.inputs[j].number;
  }

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    operands.codec.prepare(shared, thread, threads);
  }

  template <int width>
  TD_HOST_DEVICE void run(const Shared& shared, int64_t i) const {
    float x[width][N], exact[width];
    operands.decode(shared, [this, i](int j) { return load<width>(operands.in[j] + i); }, x);
    uint32_t undecided = 0; // bit l: element l
    TD_UNROLL
    for (int l = 0; l < width; ++l) {
      const c10::formats::MixedResult r = operands.op.mixed(x[l]);
      exact[l] = r.value;
      undecided |= r.undecided & 1U << l; // a mask
    }
    Pack<Code, width> results;
    operands.codec.encode(exact, results.at, shared);
    if (undecided != 0) {
      TD_UNROLL
      for (int l = 0; l < width; ++l) {
        if (undecided >> l & 1)
          results.at[l] = in_float64(x[l][0], N > 1 ? x[l][1 % N] : 0, N > 2 ? x[l][2 % N] : 0);
      }
    }
    store(operands.out + i, results);
  }

 private:
  TD_HOST_DEVICE TD_NOINLINE Code in_float64(float x0, float x1, float x2) const {
    const float x[] = {x0, x1, x2};
    double wide[N];
    for (int j = 0; j < N; ++j) wide[j] = operands.in[j] ? static_cast<double>(x[j]) : numbers[j];
    return static_cast<Code>(
        encode_any(format, c10::formats::unpack(with_plain_nan(operands.op(wide))), 0));
  }
};

// Any strides. The elements of a pack are neighbours in the fastest dimension, or one element that
// repeats.
template <typename Op, typename Codec, typename Code, int width>
struct Rows {
  using Shared = typename Codec::Shared;
  static constexpr int N = Op::kInputs;
  Operands<Op, Codec, Code> operands;
  Offsets<N + 1> places; // of packs
  bool repeats[N];

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    operands.codec.prepare(shared, thread, threads);
  }

  TD_HOST_DEVICE void operator()(const Shared& shared, int64_t i) const {
    int64_t offsets[N + 1];
    places.of(i, offsets);
    const auto codes_of = [&](int j) {
      const Code* from = operands.in[j] + offsets[j + 1] / static_cast<int64_t>(sizeof(Code));
      if (!repeats[j]) return load<width>(from);
      Pack<Code, width> all;
      for (int l = 0; l < width; ++l) all.at[l] = *from;
      return all;
    };
    float exact[width];
    operands.compute(shared, codes_of, exact);
    Pack<Code, width> results;
    operands.codec.encode(exact, results.at, shared);
    store(operands.out + offsets[0] / static_cast<int64_t>(sizeof(Code)), results);
  }
};

// ---- launches ----

// Whether packs of four may be read and written at all operands that are tensors.
bool in_packs(const Elementwise& e, int inputs) {
  const auto bytes = static_cast<uint64_t>(4 * e.result.itemsize());
  bool aligned = is_aligned(e.out, bytes);
  for (int j = 0; j < inputs; ++j) aligned = aligned && is_aligned(e.inputs[j].data, bytes);
  return aligned;
}

// The same within the fastest dimension, for operands with strides.
bool in_packs(const Elementwise& e, const Layout& layout, int inputs) {
  const int64_t width = e.result.itemsize();
  bool packs = layout.sizes[0] % 4 == 0 && layout.strides[0][0] == width;
  for (int j = 0; j <= inputs; ++j) {
    const void* data = j == 0 ? e.out : e.inputs[j - 1].data;
    if (layout.strides[j][0] == 0) continue; // a number, or one repeated element
    packs = packs && layout.strides[j][0] == width &&
        is_aligned(data, static_cast<uint64_t>(4 * width));
    for (int d = 1; d < layout.dims; ++d) packs = packs && layout.strides[j][d] % (4 * width) == 0;
  }
  return packs;
}

template <int width, typename Op, typename Codec, typename Code>
Status launch_rows(const Elementwise& e, Layout layout, const Operands<Op, Codec, Code>& operands,
                   Stream stream) {
  constexpr int N = Op::kInputs;
  layout.sizes[0] /= width;
  for (int j = 0; j <= N; ++j) layout.strides[j][0] *= width;
  Rows<Op, Codec, Code, width> body{operands, Offsets<N + 1>(layout, e.n), {}};
  for (int j = 0; j < N; ++j) body.repeats[j] = layout.strides[j + 1][0] == 0;
  return for_each(e.n / width, stream, body);
}

// Calls body with the codec of a result to nearest, and an unsigned number as wide as the codes.
template <typename Body>
Status with_packed_codec(const Format& f, const Body& body) {
  return with_codec(f, [&](const auto& codec, auto code) {
    return body(PackedCodec<std::decay_t<decltype(codec)>, decltype(code)>(f, codec), code);
  });
}

template <typename Op>
Status run_flat(const Elementwise& e, const Op& op, Stream stream) {
  return with_packed_codec(e.result, [&](const auto& packed, auto code) {
    return for_each_packed(
        e.n, in_packs(e, Op::kInputs), stream,
        Flat<Op, std::decay_t<decltype(packed)>, decltype(code)>{{e, packed, op}});
  });
}

template <typename Op>
Status run_mixed(const Elementwise& e, const Op& op, Stream stream) {
  return with_packed_codec(e.result, [&](const auto& packed, auto code) {
    return for_each_packed(
        e.n, in_packs(e, Op::kInputs), stream,
        FlatMixed<Op, std::decay_t<decltype(packed)>, decltype(code)>(e, packed, op));
  });
}

template <typename Op>
Status run_rows(const Elementwise& e, const Op& op, Stream stream) {
  return with_packed_codec(e.result, [&](const auto& packed, auto code) {
    const Operands<Op, std::decay_t<decltype(packed)>, decltype(code)> operands(e, packed, op);
    const Layout layout = with_rows(e, Op::kInputs);
    return in_packs(e, layout, Op::kInputs) ? launch_rows<4>(e, layout, operands, stream)
                                            : launch_rows<1>(e, layout, operands, stream);
  });
}

template <typename Op>
Status run_drawn(const Elementwise& e, const Op& op, Stream stream) {
  return with_drawn_codec(e.result, [&](const auto& codec, auto code) {
    using Codec = PackedDrawnCodec<std::decay_t<decltype(codec)>, decltype(code)>;
    return for_each_drawn(e.n, {e.seed}, stream,
                          Flat<Op, Codec, decltype(code)>{{e, Codec(e.result, codec), op}});
  });
}

} // namespace

// Operands other than numbers have the result's format, which must have a codec. In random modes,
// and with a float64 number, all operands must be contiguous.
bool serves_packed(const Elementwise& e, int inputs) {
  const Format nearest = to_nearest(e.result);
  const bool flat = e.layout.dims == 0, drawn = has_drawn_codec(e.result);
  if (!has_packed_numbers(nearest) || !(drawn || e.result == nearest) || (drawn && !flat))
    return false;
  if (e.in == Arithmetic::Double || (e.in == Arithmetic::Mixed && (drawn || !flat))) return false;
  for (int j = 0; j < inputs; ++j) {
    if (e.inputs[j].data && !(e.inputs[j].format && to_nearest(*e.inputs[j].format) == nearest))
      return false;
  }
  return true;
}

Status packed_binary(const Elementwise& e, BinaryOp op, Stream stream) {
  if (e.in == Arithmetic::Mixed) return run_mixed(e, Binary(e, op), stream);
  if (has_drawn_codec(e.result)) return run_drawn(e, AnyBinary{op}, stream);
  if (e.layout.dims != 0) return run_rows(e, AnyBinary{op}, stream);
  switch (op) {
#define TD_CASE(name, text) \
  case BinaryOp::name: return run_flat(e, OneBinary<BinaryOp::name>{}, stream);
    AT_FORALL_BINARY_OPERATIONS(TD_CASE)
#undef TD_CASE
  }
  return 0;
}

Status packed_ternary(const Elementwise& e, TernaryOp op, double s, Stream stream) {
  if (e.in == Arithmetic::Mixed) return run_mixed(e, Ternary(e, op, s), stream);
  const AnyTernary in_float{op, static_cast<float>(s)};
  if (has_drawn_codec(e.result)) return run_drawn(e, in_float, stream);
  return e.layout.dims == 0 ? run_flat(e, in_float, stream) : run_rows(e, in_float, stream);
}

Status packed_unary(const Elementwise& e, UnaryOp op, Stream stream) {
  if (has_drawn_codec(e.result)) return run_drawn(e, Unary{op}, stream);
  return e.layout.dims == 0 ? run_flat(e, Unary{op}, stream) : run_rows(e, Unary{op}, stream);
}

} // namespace at::formats::cuda
