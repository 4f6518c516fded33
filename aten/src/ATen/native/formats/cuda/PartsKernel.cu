// Codes to the 16-bit numbers that tensor cores multiply.
#include <ATen/native/formats/cuda/Kernels.h>
#include <ATen/native/formats/cuda/PackedCodec.h>

namespace at::formats::cuda {
namespace {

using c10::formats::half_part;
using c10::formats::HalfParts;
using c10::formats::HalfType;

template <int parts>
struct DecodeParts {
  CodesIn codes;
  uint16_t *first, *second;
  HalfType type;
  Decoder<float> decode;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    const float x = decode(static_cast<Machine<float>::Bits>(codes.at(i)));
    first[i] = half_part(type, x, 0);
    if constexpr (parts == 2) second[i] = half_part(type, x, 1);
  }
};

// Codes of 8 bits, which have one part: looked up in a table of all codes, in a block's memory.
struct PartsOfBytes {
  struct Shared {
    uint16_t of_code[256];
  };
  const uint8_t* codes;
  uint16_t* part;
  HalfType type;
  Decoder<float> decode;

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    for (int code = thread; code < 256; code += threads) {
      shared.of_code[code] = half_part(type, decode(static_cast<Machine<float>::Bits>(code)), 0);
    }
  }
  template <int width>
  TD_HOST_DEVICE void run(const Shared& shared, int64_t i) const {
    const auto in = load<width>(codes + i);
    Pack<uint16_t, width> out;
    TD_UNROLL
    for (int j = 0; j < width; ++j) out.at[j] = shared.of_code[in.at[j]];
    store(part + i, out);
  }
};

// Codes of 16 bits, in the most common formats.
template <typename PackedDecode, int parts>
struct PartsOfShorts {
  const uint16_t* codes;
  uint16_t *first, *second;
  HalfType type;
  PackedDecode decode;

  template <int width>
  TD_HOST_DEVICE void run(int64_t i) const {
    const auto in = load<width>(codes + i);
    Pack<uint16_t, width> out[parts];
    TD_UNROLL
    for (int j = 0; j < width; ++j) {
      const float x = decode(at_top(in, j, decode.unused));
      for (int part = 0; part < parts; ++part) out[part].at[j] = half_part(type, x, part);
    }
    store(first + i, out[0]);
    if constexpr (parts == 2) store(second + i, out[1]);
  }
};

// Launches bodies for both tensors, in packs of `width`.
template <int width, typename Body>
Status launch_packs(const Body& a, int64_t a_elements, const Body& b, int64_t b_elements,
                    Stream stream) {
  using Pair = Several<Packed<Body, width>, 2>;
  const int64_t ends[] = {(a_elements + width - 1) / width, (b_elements + width - 1) / width};
  return for_each(ends[0] + ends[1], stream,
                  Pair{{{a, a_elements}, {b, b_elements}}, {ends[0], ends[0] + ends[1]}});
}

template <typename Make>
Status launch_both(const Format& f, const PartsCast& a, const PartsCast& b, Stream stream,
                   const Make& body) {
  const auto allows_packs = [&](const PartsCast& cast) {
    return is_aligned(cast.codes, static_cast<uint64_t>(4 * f.itemsize())) &&
        is_aligned(cast.first, 8) && is_aligned(cast.second, 8);
  };
  return allows_packs(a) && allows_packs(b) ? launch_packs<4>(body(a), a.n, body(b), b.n, stream)
                                            : launch_packs<1>(body(a), a.n, body(b), b.n, stream);
}

template <typename PackedDecode, int parts>
Status launch_shorts(const Format& f, HalfType type, const PartsCast& a, const PartsCast& b,
                     Stream stream) {
  return launch_both(f, a, b, stream, [&](const PartsCast& cast) {
    return PartsOfShorts<PackedDecode, parts>{static_cast<const uint16_t*>(cast.codes), cast.first,
                                              cast.second, type, PackedDecode(f)};
  });
}

template <int parts>
Status launch_parts(const Format& f, HalfType type, const PartsCast& a, const PartsCast& b,
                    Stream stream) {
  const Decoder<float> decode(f);
  const auto body = [&](const PartsCast& cast) {
    return DecodeParts<parts>{{cast.codes, f.itemsize()}, cast.first, cast.second, type, decode};
  };
  return for_each(a.n + b.n, stream,
                  Several<DecodeParts<parts>, 2>{{body(a), body(b)}, {a.n, a.n + b.n}});
}

Status decode_parts(const Format& f, const HalfParts& parts, const PartsCast& a, const PartsCast& b,
                    Stream stream) {
  const HalfType type = parts.type;
  if (f.itemsize() == 1 && parts.count == 1) {
    return launch_both(f, a, b, stream, [&](const PartsCast& cast) {
      return PartsOfBytes{static_cast<const uint8_t*>(cast.codes), cast.first, type,
                          Decoder<float>(f)};
    });
  }
  const Format nearest = to_nearest(f);
  const auto with_parts = [&](auto count) {
    if (f.itemsize() == 2 && PackedFloatDecoder::serves(nearest))
      return launch_shorts<PackedFloatDecoder, count>(nearest, type, a, b, stream);
    if (f.itemsize() == 2 && PackedPositDecoder::serves(nearest))
      return launch_shorts<PackedPositDecoder, count>(nearest, type, a, b, stream);
    return launch_parts<count>(f, type, a, b, stream);
  };
  return parts.count == 1 ? with_parts(std::integral_constant<int, 1>{})
                          : with_parts(std::integral_constant<int, 2>{});
}

} // namespace

void fill_parts(CudaKernels& k) {
  k.decode_parts = &decode_parts;
}

} // namespace at::formats::cuda
