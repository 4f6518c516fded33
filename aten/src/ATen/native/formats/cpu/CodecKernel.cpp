// Loops over the codecs: fast paths for every deterministic mode and, where their encoders serve a format, for the stochastic ones. The
// generic codec does the rest.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <ATen/FormatDispatch.h>
#include <ATen/native/formats/cpu/Loops.h>
#include <c10/formats/FastDecode.h>
#include <c10/formats/FastOrdinary.h>
#include <c10/formats/FastStochastic.h>

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

// Whether a tag of AT_DISPATCH_ALL_FORMATS can be of a kind: what cannot be need not be compiled.
template <typename Tag>
constexpr bool can_be(Tag, Kind) {
  return true;
}
template <Format F>
constexpr bool can_be(StaticFormat<F>, Kind kind) {
  return F.kind == kind;
}

// A rounding mode changes nothing in what codes mean.
Format meaning(const Format& f) {
  Format plain = f;
  plain.rounding = Rounding::NearestEven;
  return plain;
}

template <typename T>
void decode_all(const Format& f, const void* codes, T* values, int64_t n) {
  AT_DISPATCH_ALL_FORMATS(meaning(f), [=](auto tag) {
    const Format format = tag;
    with_code_type(format, [=](auto code) {
      using Code = decltype(code);
      const Code* in = static_cast<const Code*>(codes);
      if constexpr (sizeof(T) >= sizeof(Code)) {
        if constexpr (can_be(decltype(tag){}, Kind::Posit)) {
          if (format.kind == Kind::Posit) transform(in, values, n, [d = PositDecoder<T>(tag)](Code c) TD_INLINE_LAMBDA { return d(c); });
        }
        if constexpr (can_be(decltype(tag){}, Kind::Float)) {
          if (format.kind == Kind::Float) {
            if (OrdinaryFloatDecoder<T>::serves(tag)) {
              transform(in, values, n, [d = OrdinaryFloatDecoder<T>(tag)](Code c) TD_INLINE_LAMBDA { return d(c); });
            } else {
              transform(in, values, n, [d = FloatDecoder<T>(tag)](Code c) TD_INLINE_LAMBDA { return d(c); });
            }
          }
        }
        if constexpr (can_be(decltype(tag){}, Kind::Fixed)) {
          if (format.kind == Kind::Fixed) transform(in, values, n, [d = FixedDecoder<T>(tag)](Code c) TD_INLINE_LAMBDA { return d(c); });
        }
      }
    });
  });
}

// ---- deterministic modes ----

template <typename T, template <typename> class Mode, typename Tag, typename Code>
void encode_with_mode(Tag tag, const T* values, Code* codes, int64_t n) {
  const Kind kind = Format(tag).kind;
  if constexpr (can_be(Tag{}, Kind::Posit)) {
    if (kind == Kind::Posit) transform(values, codes, n, [e = PositEncoder<T, Mode<T>>(tag)](T x) TD_INLINE_LAMBDA { return e(x); });
  }
  if constexpr (can_be(Tag{}, Kind::Float)) {
    if (kind == Kind::Float) transform(values, codes, n, [e = FloatEncoder<T, Mode<T>>(tag)](T x) TD_INLINE_LAMBDA { return e(x); });
  }
  if constexpr (can_be(Tag{}, Kind::Fixed)) {
    if (kind == Kind::Fixed) transform(values, codes, n, [e = FixedEncoder<T, Mode<T>>(tag)](T x) TD_INLINE_LAMBDA { return e(x); });
  }
}

template <typename T>
void encode_nearest(const Format& f, const T* values, void* codes, int64_t n) {
  AT_DISPATCH_ALL_FORMATS(f, [=](auto tag) {
    with_code_type(tag, [=](auto code) {
      using Code = decltype(code);
      Code* out = static_cast<Code*>(codes);
      if constexpr (sizeof(T) >= sizeof(Code)) {
        if (OrdinaryFloatEncoder<T, Rounding::NearestEven>::serves(tag)) {
          if constexpr (can_be(decltype(tag){}, Kind::Float)) {
            transform(values, out, n, [e = OrdinaryFloatEncoder<T, Rounding::NearestEven>(tag)](T x) TD_INLINE_LAMBDA { return e(x); });
          }
        } else if (OrdinaryPositEncoder<T, Rounding::NearestEven>::serves(tag)) {
          if constexpr (can_be(decltype(tag){}, Kind::Posit)) {
            transform(values, out, n, [e = OrdinaryPositEncoder<T, Rounding::NearestEven>(tag)](T x) TD_INLINE_LAMBDA { return e(x); });
          }
        } else {
          encode_with_mode<T, NearestEvenMode>(tag, values, out, n);
        }
      }
    });
  });
}

// The format as a variable, but for its mode: one copy of the code for all formats.
template <typename T>
void encode_directed(const Format& f, const T* values, void* codes, int64_t n) {
  with_code_type(f, [=](auto code) {
    using Code = decltype(code);
    if constexpr (sizeof(T) >= sizeof(Code)) {
      Code* out = static_cast<Code*>(codes);
      const bool done = with_directed_mode(f.rounding, [=](auto mode) {
        using Float = OrdinaryFloatEncoder<T, mode.value>;
        using Posit = OrdinaryPositEncoder<T, mode.value>;
        if (Float::serves(f)) {
          transform(values, out, n, [e = Float(f)](T x) TD_INLINE_LAMBDA { return e(x); });
          return true;
        }
        if (Posit::serves(f)) {
          transform(values, out, n, [e = Posit(f)](T x) TD_INLINE_LAMBDA { return e(x); });
          return true;
        }
        return false;
      });
      if (!done) encode_with_mode<T, DirectedMode>(f, values, out, n);
    }
  });
}

// ---- random words ----

constexpr int64_t kBlock = 512; // elements whose random words are made at once

// Halves of the words of 64 indices in a row, from index 64 * group on.
__attribute__((noinline)) void random_group(uint64_t seed, uint64_t group, uint32_t stream, uint32_t* __restrict out) {
  const uint64_t first = group * kPhiloxLanes;
  for (int c = 0; c < kPhiloxLanes; ++c) {
    const PhiloxBlock p = philox(seed, first + c, stream);
    out[c] = p.x0;
    out[kPhiloxLanes + c] = p.x1;
    out[2 * kPhiloxLanes + c] = p.x2;
    out[3 * kPhiloxLanes + c] = p.x3;
  }
}

struct RandomBlock {
  alignas(64) uint32_t halves[kBlock + 2 * kPhiloxGroup];

  // Halves of n <= kBlock words; they start at the pointer given back.
  const uint32_t* fill(const RandomWords& r, uint64_t done, int64_t n, uint32_t stream) {
    const uint64_t first = r.first + done * r.step;
    if (r.step != 1) {
      for (int64_t i = 0; i < n; ++i) halves[i] = random_half(r.seed, first + i * r.step, stream);
      return halves;
    }
    const uint64_t group = first / kPhiloxGroup, offset = first % kPhiloxGroup;
    for (uint64_t g = 0; g * kPhiloxGroup < offset + n; ++g) random_group(r.seed, group + g, stream, halves + g * kPhiloxGroup);
    return halves + offset;
  }
};

// ---- stochastic modes ----

// Vectorised where `each` decides; gives back whether it left anything undecided.
template <typename T, typename Random, typename Code, typename Each>
__attribute__((noinline)) bool transform_random(const T* __restrict in, const Random* __restrict random, Code* __restrict out, int64_t n, Each each) {
  uint64_t undecided = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto r = each(in[i], random[i]);
    out[i] = static_cast<Code>(r.code);
    undecided |= r.undecided;
  }
  return undecided != 0;
}

template <typename Code, typename Mover>
__attribute__((noinline)) void move_codes(Code* __restrict codes, const uint32_t* __restrict coins, int64_t n, Mover mover) {
  using Lane = std::conditional_t<sizeof(Code) == 8, uint64_t, uint32_t>;
  for (int64_t i = 0; i < n; ++i) {
    const Lane up = static_cast<Lane>(static_cast<std::make_signed_t<Lane>>(static_cast<int32_t>(coins[i]) >> 31));
    codes[i] = static_cast<Code>(mover(static_cast<Lane>(codes[i]), up));
  }
}

template <typename T, typename Encoder, typename Code>
void encode_proportional(const Format& f, const T* values, Code* codes, int64_t n, const RandomWords& words) {
  using Bits = typename Machine<T>::Bits;
  const Encoder encoder(f);
  const auto each = [encoder](T x, Bits random) TD_INLINE_LAMBDA { return encoder(x, random); };
  RandomBlock high, low;
  Bits joined[kBlock];
  for (int64_t done = 0; done < n; done += kBlock) {
    const int64_t m = n - done < kBlock ? n - done : kBlock;
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
      const uint64_t word = random_word(words.seed, words.first + (done + i) * words.step);
      codes[done + i] = static_cast<Code>(encode(f, unpack(static_cast<double>(values[done + i])), word));
    }
  }
}

// The modes that toss a coin, the top bit of the element's word: StochasticEqual and UpDown.
template <typename T, typename Encoder, typename Code>
void encode_with_coin(const Format& f, const T* values, Code* codes, int64_t n, const RandomWords& words) {
  using Bits = typename Machine<T>::Bits;
  using CodeLane = std::conditional_t<sizeof(Code) == 8, uint64_t, uint32_t>;
  const Encoder encoder(f);
  const CodeMover<CodeLane> mover(f);
  const auto equal = [encoder](T x, uint32_t h) TD_INLINE_LAMBDA {
    return MaybeCode<T>{encoder(x, static_cast<Bits>(static_cast<typename Machine<T>::Signed>(static_cast<int32_t>(h) >> 31))), 0};
  };
  RandomBlock high;
  for (int64_t done = 0; done < n; done += kBlock) {
    const int64_t m = n - done < kBlock ? n - done : kBlock;
    const uint32_t* h = high.fill(words, done, m, 0);
    if (f.rounding == Rounding::StochasticEqual) {
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

// One element after the other by the generic codec.
template <typename T, typename Code>
void encode_generic(const Format& f, const T* values, Code* codes, int64_t n, const RandomWords& words) {
  if (!is_stochastic(f.rounding)) {
    for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<Code>(encode(f, unpacked(values[i])));
    return;
  }
  RandomBlock high, low;
  for (int64_t done = 0; done < n; done += kBlock) {
    const int64_t m = n - done < kBlock ? n - done : kBlock;
    const uint32_t *h = high.fill(words, done, m, 0), *l = low.fill(words, done, m, 1);
    for (int64_t i = 0; i < m; ++i) {
      codes[done + i] = static_cast<Code>(encode(f, unpacked(values[done + i]), uint64_t{h[i]} << 32 | l[i]));
    }
  }
}

// ---- the kernels ----

template <typename T>
void encode_all(const Format& f, const T* values, void* codes, int64_t n, const RandomWords& words) {
  const bool wraps = f.overflow == Overflow::Wrap;
  if (f.rounding == Rounding::NearestEven && !wraps) return encode_nearest(f, values, codes, n);
  if (!is_stochastic(f.rounding) && !wraps) return encode_directed(f, values, codes, n);
  with_code_type(f, [&](auto code) {
    using Code = decltype(code);
    Code* out = static_cast<Code*>(codes);
    if constexpr (sizeof(T) >= sizeof(Code)) {
      if constexpr (std::is_same_v<T, float>) {
        if (f.rounding == Rounding::Stochastic && OrdinaryStochasticEncoder::serves(f)) {
          return encode_proportional<T, OrdinaryStochasticEncoder>(f, values, out, n, words);
        }
      }
      if (f.rounding == Rounding::Stochastic && StochasticFloatEncoder<T>::serves(f)) {
        return encode_proportional<T, StochasticFloatEncoder<T>>(f, values, out, n, words);
      }
      if (f.rounding == Rounding::Stochastic && StochasticPositEncoder<T>::serves(f)) {
        return encode_proportional<T, StochasticPositEncoder<T>>(f, values, out, n, words);
      }
      const bool equal = f.rounding == Rounding::StochasticEqual && f.subnormals == Subnormals::Gradual && f.underflow == Underflow::Minpos && !wraps;
      if (equal || (f.rounding == Rounding::UpDown && CodeMover<uint32_t>::serves(f))) {
        if (f.rounding == Rounding::UpDown) encode_nearest(meaning(f), values, codes, n);
        switch (f.kind) {
          case Kind::Posit: return encode_with_coin<T, PositEncoder<T, DirectedMode<T>>>(f, values, out, n, words);
          case Kind::Float: return encode_with_coin<T, FloatEncoder<T, DirectedMode<T>>>(f, values, out, n, words);
          case Kind::Fixed: return encode_with_coin<T, FixedEncoder<T, DirectedMode<T>>>(f, values, out, n, words);
        }
      }
    }
    encode_generic(f, values, out, n, words);
  });
}

template <typename T>
void encode_integers(const Format& f, const T* values, void* codes, int64_t n, const RandomWords& words) {
  with_code_type(f, [&](auto code) { encode_generic(f, values, static_cast<decltype(code)*>(codes), n, words); });
}

void encode_floats(const Format& f, const float* values, void* codes, int64_t n, const RandomWords& words) {
  if (f.fits_float()) return encode_all<float>(f, values, codes, n, words);
  // Its exponents or fraction are wider than float32's: by way of double, in blocks.
  double wide[kBlock];
  for (int64_t done = 0; done < n; done += kBlock) {
    const int64_t m = n - done < kBlock ? n - done : kBlock;
    for (int64_t i = 0; i < m; ++i) wide[i] = static_cast<double>(values[done + i]);
    const RandomWords rest{words.seed, words.first + done * words.step, words.step};
    encode_all<double>(f, wide, static_cast<char*>(codes) + done * f.itemsize(), m, rest);
  }
}

} // namespace

void fill_codec(CpuKernels& k) {
  k.decode_float = &decode_all<float>;
  k.decode_double = &decode_all<double>;
  k.encode_float = &encode_floats;
  k.encode_double = &encode_all<double>;
  k.encode_int64 = &encode_integers<int64_t>;
  k.encode_uint64 = &encode_integers<uint64_t>;
}

} // namespace at::formats::CPU_CAPABILITY
