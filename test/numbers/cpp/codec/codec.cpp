// The codecs of the headers alone, for ctypes: exact_codecs.py. It needs no build of the package,
// so that testing a changed header takes seconds.
#include <ATen/native/formats/cuda/Tables.cu>

#include <ATen/native/formats/cuda/Codec.h>
#include <c10/formats/codec/FastRound.h>
#include <c10/formats/codec/HalfParts.h>
#include <test/support/format_fields.h>

using namespace c10::formats;

namespace {

template <typename T>
bool same(T a, T b) {
  return bits_as<typename Machine<T>::Bits>(a) == bits_as<typename Machine<T>::Bits>(b) ||
      (a != a && b != b);
}

// Tells whether the short encoders and rounders of one mode agree with the generic codec of each
// format that they serve.
template <typename T, Rounding mode>
bool constant_mode_agrees(const Format& f, T x, uint64_t code) {
  if (f.rounding != mode) return true;
  if (ConstantModeFloatEncoder<T, mode>::serves(f) &&
      ConstantModeFloatEncoder<T, mode>(f)(x) != code)
    return false;
  if (ConstantModePositEncoder<T, mode>::serves(f) &&
      ConstantModePositEncoder<T, mode>(f)(x) != code)
    return false;
  const T value = T(to_double(decode(f, code)));
  if (ConstantModeFixedRounder<T, mode>::serves(f))
    return same(ConstantModeFixedRounder<T, mode>(f)(x), value);
  return !ConstantModeFloatRounder<T, mode>::serves(f) ||
      same(ConstantModeFloatRounder<T, mode>(f)(x), value);
}

template <typename T>
bool fast_agrees(const Format& f, const at::formats::cuda::Encoder<T>& fast, T x, uint64_t code) {
  return fast(x, 0) == code && constant_mode_agrees<T, Rounding::NearestEven>(f, x, code) &&
      constant_mode_agrees<T, Rounding::NearestZero>(f, x, code) &&
      constant_mode_agrees<T, Rounding::NearestAway>(f, x, code) &&
      constant_mode_agrees<T, Rounding::Up>(f, x, code) &&
      constant_mode_agrees<T, Rounding::Down>(f, x, code) &&
      constant_mode_agrees<T, Rounding::TowardZero>(f, x, code) &&
      constant_mode_agrees<T, Rounding::ToOdd>(f, x, code);
}

} // namespace

extern "C" {

// Encodes with the generic codec, using random words where given. Without words it returns the
// number of inputs for which a fast path gives another code.
int64_t encode_all(const int32_t* fields, const double* x, const uint64_t* words, uint64_t* codes,
                   int64_t n) {
  const Format f = format_of(fields);
  const at::formats::cuda::Encoder<double> wide(f, {});
  const at::formats::cuda::Encoder<float> narrow(f, {});
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; ++i) {
    codes[i] = encode(f, unpack(x[i]), words ? words[i] : 0);
    if (words) continue;
    wrong += !fast_agrees(f, wide, x[i], codes[i]);
    if (f.fits_float() && same(double(float(x[i])), x[i]))
      wrong += !fast_agrees(f, narrow, float(x[i]), codes[i]);
  }
  return wrong;
}

int64_t decode_all(const int32_t* fields, const uint64_t* codes, double* values, int64_t n) {
  const Format f = format_of(fields);
  const at::formats::cuda::Decoder<double> wide(f);
  const at::formats::cuda::Decoder<float> narrow(f);
  const bool ordinary = IeeeFloatDecoder<double>::serves(f);
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; ++i) {
    values[i] = to_double(decode(f, codes[i]));
    wrong += !same(wide(codes[i]), values[i]);
    if (f.fits_float()) wrong += !same(double(narrow(uint32_t(codes[i]))), values[i]);
    if (ordinary) wrong += !same(IeeeFloatDecoder<double>(f)(codes[i]), values[i]);
  }
  return wrong;
}

// Writes the 16-bit parts of each value. Returns their number, or 0 where the format's values have
// none. type: 0 for float16.
int64_t parts_of_all(const int32_t* fields, const uint64_t* codes, uint16_t* first,
                     uint16_t* second, int64_t* type, int64_t n) {
  const Format f = format_of(fields);
  const auto parts = find_half_parts(f);
  if (!parts) return 0;
  *type = int64_t(parts->type);
  for (int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<float>(value_of(f, codes[i]));
    first[i] = half_part(parts->type, x, 0);
    second[i] = parts->count == 2 ? half_part(parts->type, x, 1) : 0;
  }
  return parts->count;
}

} // extern "C"
