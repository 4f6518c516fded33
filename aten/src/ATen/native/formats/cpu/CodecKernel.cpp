// Loops over the codecs. A rounding mode's row names its fast path, used where that path's encoders
// take the format. The generic codec does the rest.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <ATen/FormatDispatch.h>
#include <ATen/native/formats/cpu/Loops.h>
#include <ATen/native/formats/cpu/RandomBlock.h>
#include <ATen/native/formats/cpu/ShortCodec.h>
#include <ATen/native/formats/cpu/TableDraws.h>
#include <c10/formats/codec/Binary64.h>
#include <c10/formats/codec/FastBinary32.h>
#include <c10/formats/codec/FastConstantMode.h>
#include <c10/formats/codec/FastDecode.h>
#include <c10/formats/codec/FastStochastic.h>

#include <cstring>

namespace at::formats::CPU_CAPABILITY {
namespace {

using namespace c10::formats;

// Calls body with an unsigned type as wide as the format's codes in memory.
template <typename Body>
inline void with_code_type(const Format& f, Body&& body) {
  switch (f.itemsize()) {
    case 1: return body(uint8_t{});
    case 2: return body(uint16_t{});
    case 4: return body(uint32_t{});
    default: return body(uint64_t{});
  }
}

// Loops over float64 numbers write codes of 64 bits, which encode_by_blocks shortens: one copy of
// each loop instead of four. Loops over float32 numbers write codes as wide as in memory.
template <typename T, typename Code>
using LoopCode = std::conditional_t<std::is_same_v<T, float>, Code, uint64_t>;

template <typename T, typename Body>
inline void with_loop_code(const Format& f, Body&& body) {
  if constexpr (std::is_same_v<T, float>) {
    with_code_type(f, [&](auto code) {
      if constexpr (sizeof(code) <= sizeof(float)) body(code);
    });
  } else {
    body(uint64_t{});
  }
}

// Calls encode(values, codes of 64 bits, count, words) for one block after the other.
template <typename T, typename Encode>
void encode_by_blocks(const Format& f, const T* values, void* codes, int64_t n,
                      const RandomWords& words, Encode encode) {
  if (f.itemsize() == 8) return encode(values, static_cast<uint64_t*>(codes), n, words);
  uint64_t wide[kRandomBlock];
  for (int64_t done = 0; done < n; done += kRandomBlock) {
    const int64_t m = n - done < kRandomBlock ? n - done : kRandomBlock;
    encode(values + done, wide, m,
           RandomWords{words.seed, words.first + done * words.step, words.step});
    with_code_type(f, [&](auto code) {
      transform(wide, static_cast<decltype(code)*>(codes) + done, m,
                [](uint64_t c) TD_INLINE_LAMBDA { return c; });
    });
  }
}

// Drops the rounding mode, which does not change the meaning of codes.
Format meaning(const Format& f) {
  Format plain = f;
  plain.rounding = Rounding::NearestEven;
  return plain;
}

// Decodes a run-time format; one copy of the code serves all.
template <typename T>
void decode_variable(const Format& f, const void* codes, T* values, int64_t n) {
  if (f.is_table()) return decode_table_all(f, codes, values, n);
  with_code_type(f, [=, &f](auto code) {
    using Code = decltype(code);
    const Code* in = static_cast<const Code*>(codes);
    if constexpr (sizeof(T) >= sizeof(Code)) {
      switch (f.kind) {
        case Kind::Posit:
          if (PositDecoder<T>::serves(f))
            return transform(in, values, n,
                             [d = PositDecoder<T>(f)](Code c) TD_INLINE_LAMBDA { return d(c); });
          if constexpr (sizeof(Code) == 8) {
            using Wide = PositDecoder<T, int64_t>;
            if (Wide::serves(f))
              return transform(in, values, n,
                               [d = Wide(f)](Code c) TD_INLINE_LAMBDA { return d(c); });
          }
          for (int64_t i = 0; i < n; ++i) values[i] = static_cast<T>(to_double(decode(f, in[i])));
          return;
        case Kind::Fixed:
          return transform(in, values, n,
                           [d = FixedDecoder<T>(f)](Code c) TD_INLINE_LAMBDA { return d(c); });
        case Kind::Float:
          if (IeeeFloatDecoder<T>::serves(f))
            return transform(in, values, n, [d = IeeeFloatDecoder<T>(f)](Code c) TD_INLINE_LAMBDA {
              return d(c);
            });
          return transform(in, values, n,
                           [d = FloatDecoder<T>(f)](Code c) TD_INLINE_LAMBDA { return d(c); });
        case Kind::Takum:
          for (int64_t i = 0; i < n; ++i)
            values[i] = static_cast<T>(to_double(decode_takum(f, in[i])));
          return;
        case Kind::Table: return; // handled above
      }
    }
  });
}

template <typename T>
void decode_all(const Format& f, const void* codes, T* values, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    if (decode_short(f, codes, values, n)) return;
  }
  const Format plain = meaning(f);
  const Builtin type = builtin_of(plain);
  if (type == Builtin::kNone) return decode_variable(plain, codes, values, n);
  const auto decode_with = [=]<typename scalar_t>(auto decoder) TD_INLINE_LAMBDA {
    using Code = typename scalar_t::code_t;
    transform(static_cast<const Code*>(codes), values, n,
              [decoder](Code c) TD_INLINE_LAMBDA { return decoder(c); });
  };
  if (plain.is_posit()) {
    return AT_DISPATCH_POSIT_TYPES(type, "decode", [&]<typename scalar_t>() {
      decode_with.template operator()<scalar_t>(PositDecoder<T>(scalar_t::format));
    });
  }
  AT_DISPATCH_CUSTOM_FLOAT_TYPES(type, "decode", [&]<typename scalar_t>() {
    using Short = IeeeFloatDecoder<T>;
    using Decoder = std::conditional_t<Short::serves(scalar_t::format), Short, FloatDecoder<T>>;
    decode_with.template operator()<scalar_t>(Decoder(scalar_t::format));
  });
}

// ---- deterministic modes ----

template <typename T, template <typename> class Mode, typename Code>
void encode_with_mode(const Format& f, const T* values, Code* codes, int64_t n) {
  switch (f.kind) {
    case Kind::Posit:
      return transform(values, codes, n,
                       [e = PositEncoder<T, Mode<T>>(f)](T x) TD_INLINE_LAMBDA { return e(x); });
    case Kind::Float:
      return transform(values, codes, n,
                       [e = FloatEncoder<T, Mode<T>>(f)](T x) TD_INLINE_LAMBDA { return e(x); });
    case Kind::Fixed:
      return transform(values, codes, n,
                       [e = FixedEncoder<T, Mode<T>>(f)](T x) TD_INLINE_LAMBDA { return e(x); });
    case Kind::Table: // encode_table_all
    case Kind::Takum: return; // encode_generic
  }
}

// Encodes by the shorter encoders, with the mode as a constant. Returns false if none takes the
// format.
template <typename T, Rounding mode, typename Code>
bool encode_constant_mode(const Format& f, const T* values, Code* codes, int64_t n) {
  using Float = ConstantModeFloatEncoder<T, mode>;
  using Posit = ConstantModePositEncoder<T, mode>;
  if (Float::serves(f)) {
    transform(values, codes, n, [e = Float(f)](T x) TD_INLINE_LAMBDA { return e(x); });
    return true;
  }
  if (Posit::serves(f)) {
    transform(values, codes, n, [e = Posit(f)](T x) TD_INLINE_LAMBDA { return e(x); });
    return true;
  }
  return false;
}

// Encodes to a run-time format, or by a mode other than nearest even. The format is a variable; its
// mode is a constant where that helps.
template <typename T>
void encode_variable(const Format& f, const T* values, void* codes, int64_t n) {
  with_loop_code<T>(f, [=, &f](auto code) {
    auto* out = static_cast<decltype(code)*>(codes);
    if (with_constant_mode(f.rounding, [=, &f](auto mode) {
          return encode_constant_mode<T, mode.value>(f, values, out, n);
        }))
      return;
    if (f.rounding == Rounding::NearestEven)
      encode_with_mode<T, NearestEvenMode>(f, values, out, n);
    else encode_with_mode<T, DirectedMode>(f, values, out, n);
  });
}

template <typename T>
void encode_nearest(const Format& f, const T* values, void* codes, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    if (encode_short(f, Itself(), values, values, codes, n)) return;
  }
  const Builtin type = builtin_of(f);
  if (type == Builtin::kNone) return encode_variable(f, values, codes, n);
  const auto encode_with = [=]<typename scalar_t>(auto encoder) TD_INLINE_LAMBDA {
    transform(values, static_cast<LoopCode<T, typename scalar_t::code_t>*>(codes), n,
              [encoder](T x) TD_INLINE_LAMBDA { return encoder(x); });
  };
  if (f.is_posit()) {
    return AT_DISPATCH_POSIT_TYPES(type, "encode", [&]<typename scalar_t>() {
      using Short = ConstantModePositEncoder<T, Rounding::NearestEven>;
      using Encoder = std::conditional_t<Short::serves(scalar_t::format), Short,
                                         PositEncoder<T, NearestEvenMode<T>>>;
      encode_with.template operator()<scalar_t>(Encoder(scalar_t::format));
    });
  }
  AT_DISPATCH_CUSTOM_FLOAT_TYPES(type, "encode", [&]<typename scalar_t>() {
    using Short = ConstantModeFloatEncoder<T, Rounding::NearestEven>;
    using Encoder = std::conditional_t<Short::serves(scalar_t::format), Short,
                                       FloatEncoder<T, NearestEvenMode<T>>>;
    encode_with.template operator()<scalar_t>(Encoder(scalar_t::format));
  });
}

// ---- stochastic modes ----

// Vectorised if `each` has no branches. Returns whether any element is undecided.
template <typename T, typename Random, typename Code, typename Each>
__attribute__((noinline)) bool transform_random(const T* __restrict in,
                                                const Random* __restrict random,
                                                Code* __restrict out, int64_t n, Each each) {
  uint64_t undecided = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto r = each(in[i], random[i]);
    out[i] = static_cast<Code>(r.code);
    undecided |= r.undecided;
  }
  return undecided != 0;
}

template <typename Code, typename Mover>
__attribute__((noinline)) void move_codes(Code* __restrict codes, const uint32_t* __restrict coins,
                                          int64_t n, Mover mover) {
  using Lane = std::conditional_t<sizeof(Code) == 8, uint64_t, uint32_t>;
  for (int64_t i = 0; i < n; ++i) {
    const Lane up = static_cast<Lane>(
        static_cast<std::make_signed_t<Lane>>(static_cast<int32_t>(coins[i]) >> 31));
    codes[i] = static_cast<Code>(mover(static_cast<Lane>(codes[i]), up));
  }
}

template <typename T, typename Encoder, typename Code>
void encode_proportional(const Format& f, const T* values, Code* codes, int64_t n,
                         const RandomWords& words) {
  using Bits = typename Machine<T>::Bits;
  const Encoder encoder(f);
  const auto each = [encoder](T x, Bits random) TD_INLINE_LAMBDA { return encoder(x, random); };
  RandomBlock high, low;
  Bits joined[kRandomBlock];
  for (int64_t done = 0; done < n; done += kRandomBlock) {
    const int64_t m = n - done < kRandomBlock ? n - done : kRandomBlock;
    const uint32_t* h = high.fill(words, done, m, 0);
    const Bits* random = joined;
    if constexpr (sizeof(Bits) == 4) {
      random = h;
    } else {
      const uint32_t* l = low.fill(words, done, m, 1);
      for (int64_t i = 0; i < m; ++i) joined[i] = Bits{h[i]} << 32 | l[i];
    }
    if (!transform_random(values + done, random, codes + done, m, each)) continue;
    for (int64_t i = 0; i < m; ++i) {
      if (each(values[done + i], random[i]).undecided == 0) continue;
      const uint64_t word = random_word(words.seed.number, words.first + (done + i) * words.step);
      codes[done + i] =
          static_cast<Code>(encode(f, unpack(static_cast<double>(values[done + i])), word));
    }
  }
}

// Encodes to float32's own codes. Half of each word is enough; the codec decides the few subnormal
// results.
void encode_binary32(const Format& f, const double* values, uint32_t* codes, int64_t n,
                     const RandomWords& words) {
  const auto each = [](double x, uint32_t high)
                        TD_INLINE_LAMBDA { return Binary32StochasticEncoder()(x, high); };
  RandomBlock high;
  for (int64_t done = 0; done < n; done += kRandomBlock) {
    const int64_t m = n - done < kRandomBlock ? n - done : kRandomBlock;
    const uint32_t* h = high.fill(words, done, m, 0);
    if (!transform_random(values + done, h, codes + done, m, each)) continue;
    for (int64_t i = 0; i < m; ++i) {
      if (each(values[done + i], h[i]).undecided == 0) continue;
      const uint64_t word = random_word(words.seed.number, words.first + (done + i) * words.step);
      codes[done + i] = static_cast<uint32_t>(encode(f, unpack(values[done + i]), word));
    }
  }
}

// The same in the mode up_down, by the machine's cast from float64 to float32.
void encode_moved_binary32(const double* values, uint32_t* codes, int64_t n,
                           const RandomWords& words) {
  const auto each = [](double x, uint32_t coin) TD_INLINE_LAMBDA {
    return MaybeCode<float>{moved_binary32(static_cast<float>(x), coin), 0};
  };
  RandomBlock high;
  for (int64_t done = 0; done < n; done += kRandomBlock) {
    const int64_t m = n - done < kRandomBlock ? n - done : kRandomBlock;
    transform_random(values + done, high.fill(words, done, m, 0), codes + done, m, each);
  }
}

// Encodes by the modes that toss a coin, the top bit of the element's word: FastPath::Coin and
// Moved.
template <typename T, typename Encoder, typename Code>
void encode_with_coin(const Format& f, const T* values, Code* codes, int64_t n,
                      const RandomWords& words) {
  using Bits = typename Machine<T>::Bits;
  using CodeLane = std::conditional_t<sizeof(Code) == 8, uint64_t, uint32_t>;
  const Encoder encoder(f);
  const CodeMover<CodeLane> mover(f);
  const auto equal = [encoder](T x, uint32_t h) TD_INLINE_LAMBDA {
    return MaybeCode<T>{encoder(x,
                                static_cast<Bits>(static_cast<typename Machine<T>::Signed>(
                                    static_cast<int32_t>(h) >> 31))),
                        0};
  };
  RandomBlock high;
  for (int64_t done = 0; done < n; done += kRandomBlock) {
    const int64_t m = n - done < kRandomBlock ? n - done : kRandomBlock;
    const uint32_t* h = high.fill(words, done, m, 0);
    if (fast_path(f.rounding) == FastPath::Coin) {
      transform_random(values + done, h, codes + done, m, equal);
    } else {
      move_codes(codes + done, h, m, mover);
    }
  }
}

template <typename T>
auto unpacked(T x) {
  if constexpr (std::is_same_v<T, float>) return unpack(static_cast<double>(x));
  else return unpack(x);
}

// Encodes one element after the other by the generic codec.
template <typename T, typename Code>
void encode_generic(const Format& f, const T* values, Code* codes, int64_t n,
                    const RandomWords& words) {
  const auto put = [&](int64_t i, uint64_t random) {
    codes[i] = static_cast<Code>(encode(f, unpacked(values[i]), random));
  };
  if (is_stochastic(f.rounding)) return with_random_words(words, n, put);
  for (int64_t i = 0; i < n; ++i) put(i, 0);
}

// Copies float64 numbers to its own codes: nothing is rounded.
void copy_binary64(const double* values, uint64_t* codes, int64_t n) {
  transform(values, codes, n, [](double x) TD_INLINE_LAMBDA {
    const uint64_t u = bits_as<uint64_t>(x), sign = u & (uint64_t{1} << 63);
    return select(mask_less<double>(infinity_bits<double>(), u ^ sign), sign | kNanOfBinary64, u);
  });
}

// ---- the kernels ----

// Only the generic codec knows wrapping, few random bits and takums. Wrapping needs all digits of a
// rounded integer, however large it is.
FastPath encoding_path(const Format& f) {
  const bool generic = f.overflow == Overflow::Wrap || f.is_takum() ||
      (f.random_bits != 0 && f.rounding == Rounding::Stochastic);
  return generic ? FastPath::None : fast_path(f.rounding);
}

template <typename T>
void encode_table_codes(const Format& f, const T* values, void* codes, int64_t n,
                        const RandomWords& words) {
  if (f.itemsize() == 1) return encode_table_all(f, values, static_cast<uint8_t*>(codes), n, words);
  encode_table_all(f, values, static_cast<uint16_t*>(codes), n, words);
}

// Encodes to all formats but tables.
template <typename T>
void encode_all(const Format& f, const T* values, void* codes, int64_t n,
                const RandomWords& words) {
  const FastPath path = encoding_path(f);
  if (f.rounding == Rounding::NearestEven && path == FastPath::Constant)
    return encode_nearest(f, values, codes, n);
  if (path == FastPath::Constant || path == FastPath::Masks)
    return encode_variable(f, values, codes, n);
  with_loop_code<T>(f, [&](auto code) {
    auto* out = static_cast<decltype(code)*>(codes);
    if constexpr (std::is_same_v<T, float>) {
      if (path == FastPath::Proportional && StochasticIeeeEncoder::serves(f)) {
        return encode_proportional<T, StochasticIeeeEncoder>(f, values, out, n, words);
      }
    }
    if (path == FastPath::Proportional && StochasticFloatEncoder<T>::serves(f)) {
      return encode_proportional<T, StochasticFloatEncoder<T>>(f, values, out, n, words);
    }
    if (path == FastPath::Proportional && StochasticPositEncoder<T>::serves(f)) {
      return encode_proportional<T, StochasticPositEncoder<T>>(f, values, out, n, words);
    }
    const bool coin = path == FastPath::Coin && f.subnormals == Subnormals::Gradual &&
        f.underflow == Underflow::Minpos;
    const bool moved = path == FastPath::Moved && CodeMover<uint32_t>::serves(f);
    if (coin || moved) {
      if (moved) encode_nearest(meaning(f), values, codes, n);
      switch (f.kind) {
        case Kind::Posit:
          return encode_with_coin<T, PositEncoder<T, DirectedMode<T>>>(f, values, out, n, words);
        case Kind::Float:
          return encode_with_coin<T, FloatEncoder<T, DirectedMode<T>>>(f, values, out, n, words);
        case Kind::Fixed:
          return encode_with_coin<T, FixedEncoder<T, DirectedMode<T>>>(f, values, out, n, words);
        case Kind::Table:
        case Kind::Takum: break;
      }
    }
    encode_generic(f, values, out, n, words);
  });
}

template <typename T>
void encode_integers(const Format& f, const T* values, void* codes, int64_t n,
                     const RandomWords& words) {
  encode_by_blocks(f, values, codes, n, words,
                   [&f](const T* block, uint64_t* wide, int64_t m, const RandomWords& w) {
                     encode_generic(f, block, wide, m, w);
                   });
}

void encode_floats(const Format& f, const float* values, void* codes, int64_t n,
                   const RandomWords& words) {
  if (f.is_table()) return encode_table_codes(f, values, codes, n, words);
  if (f.fits_float()) return encode_all(f, values, codes, n, words);
  // Wider exponents or fractions than float32's: by way of double, in blocks.
  double wide[kRandomBlock];
  for (int64_t done = 0; done < n; done += kRandomBlock) {
    const int64_t m = n - done < kRandomBlock ? n - done : kRandomBlock;
    for (int64_t i = 0; i < m; ++i) wide[i] = static_cast<double>(values[done + i]);
    const RandomWords rest{words.seed, words.first + done * words.step, words.step};
    encode_doubles(f, wide, static_cast<char*>(codes) + done * f.itemsize(), m, rest);
  }
}

} // namespace

void encode_doubles(const Format& f, const double* values, void* codes, int64_t n,
                    const RandomWords& words) {
  if (f.is_table()) return encode_table_codes(f, values, codes, n, words);
  if (is_binary64(f) && f.rounding != Rounding::UpDown)
    return copy_binary64(values, static_cast<uint64_t*>(codes), n);
  const FastPath path = encoding_path(f);
  if (path == FastPath::Proportional && is_binary32(f))
    return encode_binary32(f, values, static_cast<uint32_t*>(codes), n, words);
  if (path == FastPath::Moved && is_binary32(f))
    return encode_moved_binary32(values, static_cast<uint32_t*>(codes), n, words);
  encode_by_blocks(f, values, codes, n, words,
                   [&f](const double* block, uint64_t* wide, int64_t m, const RandomWords& w) {
                     encode_all(f, block, wide, m, w);
                   });
}

void fill_codec(CpuKernels& k) {
  k.on_float.decode = &decode_all<float>;
  k.on_double.decode = &decode_all<double>;
  k.on_float.encode = &encode_floats;
  k.on_double.encode = &encode_doubles;
  k.encode_int64 = &encode_integers<int64_t>;
  k.encode_uint64 = &encode_integers<uint64_t>;
}

} // namespace at::formats::CPU_CAPABILITY
