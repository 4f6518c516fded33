// Casts fused with a neighbouring operation: adding a row of numbers, and keeping codes by a
// condition on other numbers.
#include <ATen/native/formats/cuda/Kernels.h>
#include <ATen/native/formats/cuda/PackedCodec.h>

namespace at::formats::cuda {
namespace {

// ---- values of a matrix plus one row that is added to each of its rows ----

template <typename Codec, typename Code>
struct FlatEncodeWithRow {
  const float* values;
  const Code* row;
  int64_t columns;
  Code* codes;
  Codec codec;
  template <int width>
  TD_HOST_DEVICE void run(int64_t i) const {
    const auto in = load<width>(values + i);
    Pack<Code, width> out;
    int64_t column = i % columns;
    for (int j = 0; j < width; ++j) {
      out.at[j] =
          static_cast<Code>(codec.encode(with_plain_nan(in.at[j] + codec.decode(row[column]))));
      if (++column == columns) column = 0;
    }
    store(codes + i, out);
  }
};

template <typename Codec, typename Code>
struct DrawnEncodeWithRow {
  const float* values;
  const Code* row;
  int64_t columns;
  Code* codes;
  Codec codec;
  TD_INLINE void run(int64_t i, const Draw& draw) const {
    const auto in = load_apart(values + i, draw);
    float sums[kOfBlock];
    int64_t column = i % columns;
    for (int j = 0; j < kOfBlock; ++j) {
      sums[j] = with_plain_nan(in.at[j] + codec.decode(row[column]));
      for (column += kApart; column >= columns;) column -= columns;
    }
    Pack<Code, kOfBlock> out;
    codec.encode(sums, draw, out.at);
    store_apart(codes + i, out, draw);
  }
};

struct EncodeWithRow {
  const float* values;
  CodesIn row;
  int64_t columns;
  CodesOut codes;
  Encoder<float> encode;
  Decoder<float> decode;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    codes.put(
        i,
        encode(with_plain_nan(values[i] + decode(static_cast<uint32_t>(row.at(i % columns)))), i));
  }
};

Status encode_with_row(const Format& f, const float* values, const void* row, int64_t columns,
                       void* codes, int64_t n, const RandomWords& words, Stream stream) {
  if (has_drawn_codec(f) && draws_by_blocks(words)) {
    return with_drawn_codec(f, [&](const auto& codec, auto code) {
      using Code = decltype(code);
      using Body = DrawnEncodeWithRow<std::decay_t<decltype(codec)>, Code>;
      return for_each_drawn(
          n, words, stream,
          Body{values, static_cast<const Code*>(row), columns, static_cast<Code*>(codes), codec});
    });
  }
  if (!has_codec(f)) {
    const int width = f.itemsize();
    return for_each(n, stream,
                    EncodeWithRow{values,
                                  {row, width},
                                  columns,
                                  {codes, width},
                                  Encoder<float>(f, words),
                                  Decoder<float>(f)});
  }
  return with_codec(f, [&](const auto& codec, auto code) {
    using Code = decltype(code);
    auto* to = static_cast<Code*>(codes);
    const bool aligned = is_aligned(values, 4 * sizeof(float)) && is_aligned(to, 4 * sizeof(Code));
    return for_each_packed(n, aligned, stream,
                           FlatEncodeWithRow<std::decay_t<decltype(codec)>, Code>{
                               values, static_cast<const Code*>(row), columns, to, codec});
  });
}

// ---- codes kept where other numbers of the format exceed a threshold or are NaN, else 0 ----

template <typename Decode, typename Code>
struct FlatGate {
  const Code *codes, *numbers;
  float threshold;
  Code* out;
  Decode decode;
  template <int width>
  TD_HOST_DEVICE void run(int64_t i) const {
    auto kept = load<width>(codes + i);
    const auto x = load<width>(numbers + i);
    for (int j = 0; j < width; ++j) {
      if (decode(x.at[j]) <= threshold) kept.at[j] = 0;
    }
    store(out + i, kept);
  }
};

struct Gate {
  CodesIn codes, numbers;
  double threshold;
  CodesOut out;
  Decoder<double> decode;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    out.put(i, decode(numbers.at(i)) <= threshold ? 0 : codes.at(i));
  }
};

Status gate(const Format& f, const void* codes, const void* numbers, double threshold, void* out,
            int64_t n, Stream stream) {
  const Format nearest = to_nearest(f);
  if (!has_codec(nearest)) {
    const int width = f.itemsize();
    return for_each(
        n, stream,
        Gate{{codes, width}, {numbers, width}, threshold, {out, width}, Decoder<double>(f)});
  }
  return with_codec(nearest, [&](const auto& codec, auto code) {
    using Code = decltype(code);
    const auto *from = static_cast<const Code*>(codes), *x = static_cast<const Code*>(numbers);
    auto* to = static_cast<Code*>(out);
    const bool aligned = is_aligned(from, 4 * sizeof(Code)) && is_aligned(x, 4 * sizeof(Code)) &&
        is_aligned(to, 4 * sizeof(Code));
    using Decode = std::decay_t<decltype(codec.decode)>;
    return for_each_packed(
        n, aligned, stream,
        FlatGate<Decode, Code>{from, x, static_cast<float>(threshold), to, codec.decode});
  });
}

} // namespace

void fill_fused(CudaKernels& k) {
  k.encode_with_row = &encode_with_row;
  k.gate = &gate;
}

} // namespace at::formats::cuda
