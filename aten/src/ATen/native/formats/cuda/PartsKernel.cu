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

template <int parts>
Status launch_parts(const Format& f, HalfType type, const PartsCast& a, const PartsCast& b, Stream stream) {
  const Decoder<float> decode(f);
  const auto body = [&](const PartsCast& cast) { return DecodeParts<parts>{{cast.codes, f.itemsize()}, cast.first, cast.second, type, decode}; };
  return for_each(a.n + b.n, stream, Several<DecodeParts<parts>, 2>{{body(a), body(b)}, {a.n, a.n + b.n}});
}

Status decode_parts(const Format& f, const HalfParts& parts, const PartsCast& a, const PartsCast& b, Stream stream) {
  return parts.count == 1 ? launch_parts<1>(f, parts.type, a, b, stream) : launch_parts<2>(f, parts.type, a, b, stream);
}

} // namespace

void fill_parts(CudaKernels& k) {
  k.decode_parts = &decode_parts;
}

} // namespace at::formats::cuda
