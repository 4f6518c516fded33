// Codes to the numbers of 16 bits that tensor cores multiply.
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/Kernels.h>

namespace at::formats::cuda {
namespace {

using c10::formats::half_part;
using c10::formats::HalfParts;
using c10::formats::HalfType;

template <typename Code, int parts>
struct DecodeParts {
  const Code* codes;
  uint16_t *first, *second;
  HalfType type;
  Decoder<float> decode;
  template <int width>
  TD_HOST_DEVICE void run(int64_t i) const {
    const auto in = *reinterpret_cast<const Pack<Code, width>*>(codes + i);
    Pack<uint16_t, width> leading, rest;
    for (int j = 0; j < width; ++j) {
      const float x = decode(static_cast<Machine<float>::Bits>(in.at[j]));
      leading.at[j] = half_part(type, x, 0);
      if constexpr (parts == 2) rest.at[j] = half_part(type, x, 1);
    }
    *reinterpret_cast<Pack<uint16_t, width>*>(first + i) = leading;
    if constexpr (parts == 2) *reinterpret_cast<Pack<uint16_t, width>*>(second + i) = rest;
  }
};

Status decode_parts(const Format& f, const HalfParts& parts, const void* codes, uint16_t* first, uint16_t* second, int64_t n, Stream stream) {
  return with_code_type(f, [&](auto code) {
    using Code = decltype(code);
    const auto* from = static_cast<const Code*>(codes);
    constexpr uint64_t kPacked = 4;
    const bool aligned = is_aligned(from, kPacked * sizeof(Code)) && is_aligned(first, kPacked * sizeof(uint16_t)) &&
        (!second || is_aligned(second, kPacked * sizeof(uint16_t)));
    const Decoder<float> decode(f);
    if (parts.count == 1) return for_each_packed(n, aligned, stream, DecodeParts<Code, 1>{from, first, nullptr, parts.type, decode});
    return for_each_packed(n, aligned, stream, DecodeParts<Code, 2>{from, first, second, parts.type, decode});
  });
}

} // namespace

void fill_parts(CudaKernels& k) {
  k.decode_parts = &decode_parts;
}

} // namespace at::formats::cuda
