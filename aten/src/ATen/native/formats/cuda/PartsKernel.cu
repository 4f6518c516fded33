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

Status decode_parts(const Format& f, const HalfParts& parts, const void* codes, uint16_t* first, uint16_t* second, int64_t n, Stream stream) {
  const CodesIn in{codes, f.itemsize()};
  const Decoder<float> decode(f);
  if (parts.count == 1) return for_each(n, stream, DecodeParts<1>{in, first, nullptr, parts.type, decode});
  return for_each(n, stream, DecodeParts<2>{in, first, second, parts.type, decode});
}

} // namespace

void fill_parts(CudaKernels& k) {
  k.decode_parts = &decode_parts;
}

} // namespace at::formats::cuda
