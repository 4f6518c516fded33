// Codes to the numbers of 16 bits that tensor cores multiply.
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/Kernels.h>

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

// Of bytes, which have one part: by a table of all of them, in a block's memory.
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
    const auto in = *reinterpret_cast<const Pack<uint8_t, width>*>(codes + i);
    Pack<uint16_t, width> out;
    TD_UNROLL
    for (int j = 0; j < width; ++j) out.at[j] = shared.of_code[in.at[j]];
    *reinterpret_cast<Pack<uint16_t, width>*>(part + i) = out;
  }
};

template <int width>
Status launch_bytes(const Format& f, HalfType type, const PartsCast& a, const PartsCast& b, Stream stream) {
  using Body = Packed<PartsOfBytes, width>;
  const Decoder<float> decode(f);
  const auto body = [&](const PartsCast& cast) { return Body{{static_cast<const uint8_t*>(cast.codes), cast.first, type, decode}, cast.n}; };
  const int64_t packs[] = {(a.n + width - 1) / width, (b.n + width - 1) / width};
  return for_each(packs[0] + packs[1], stream, Several<Body, 2>{{body(a), body(b)}, {packs[0], packs[0] + packs[1]}});
}

bool allows_packs(const PartsCast& cast) {
  return is_aligned(cast.codes, 4) && is_aligned(cast.first, 8);
}

template <int parts>
Status launch_parts(const Format& f, HalfType type, const PartsCast& a, const PartsCast& b, Stream stream) {
  const Decoder<float> decode(f);
  const auto body = [&](const PartsCast& cast) { return DecodeParts<parts>{{cast.codes, f.itemsize()}, cast.first, cast.second, type, decode}; };
  return for_each(a.n + b.n, stream, Several<DecodeParts<parts>, 2>{{body(a), body(b)}, {a.n, a.n + b.n}});
}

Status decode_parts(const Format& f, const HalfParts& parts, const PartsCast& a, const PartsCast& b, Stream stream) {
  if (f.itemsize() == 1 && parts.count == 1) {
    const bool packs = allows_packs(a) && allows_packs(b);
    return packs ? launch_bytes<4>(f, parts.type, a, b, stream) : launch_bytes<1>(f, parts.type, a, b, stream);
  }
  return parts.count == 1 ? launch_parts<1>(f, parts.type, a, b, stream) : launch_parts<2>(f, parts.type, a, b, stream);
}

} // namespace

void fill_parts(CudaKernels& k) {
  k.decode_parts = &decode_parts;
}

} // namespace at::formats::cuda
