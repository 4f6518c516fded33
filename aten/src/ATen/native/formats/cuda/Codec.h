// A format's codec for one element on the device. The host chooses its fast path when it makes the
// codec. All threads take the same path, so none waits for another.
#pragma once
#include <ATen/native/formats/cuda/Launch.h>
#include <ATen/native/formats/cuda/Tables.h>
#include <c10/formats/codec/ExactCodec.h>
#include <c10/formats/codec/FastDecode.h>
#include <c10/formats/codec/FastEncode.h>
#include <c10/formats/codec/FastStochastic.h>

#include <cstddef>
#include <new>
#include <type_traits>

namespace at::formats::cuda {

using c10::formats::DirectedMode;
using c10::formats::FastPath;
using c10::formats::FixedDecoder;
using c10::formats::FixedEncoder;
using c10::formats::FloatDecoder;
using c10::formats::FloatEncoder;
using c10::formats::Kind;
using c10::formats::Machine;
using c10::formats::PositDecoder;
using c10::formats::PositEncoder;
using c10::formats::RandomWords;
using c10::formats::Rounding;
using c10::formats::Seed;

// The generic codec, compiled once a file: it is long, and the most common formats do not use it.
TD_HOST_DEVICE TD_NOINLINE static uint64_t encode_any(const Format& f,
                                                      const c10::formats::Unpacked& exact,
                                                      uint64_t random) {
  return c10::formats::encode(f, exact, random);
}
[[maybe_unused]] TD_HOST_DEVICE TD_NOINLINE static double decode_any(const Format& f,
                                                                     uint64_t code) {
  if (f.is_table()) return c10::formats::view_of(f).by_code[code & f.code_mask()];
  return c10::formats::to_double(c10::formats::decode(f, code));
}

// The random word of an element's rounding, if its mode draws one.
TD_HOST_DEVICE inline uint64_t drawn_word(const Format& f, const Seed& seed, uint64_t word) {
  return c10::formats::is_stochastic(f.rounding) ? c10::formats::random_word(seed.drawn(), word)
                                                 : 0;
}

// Decodes to numbers of T, which must have all of the format's values.
template <typename T>
class Decoder {
  using Posits = PositDecoder<T, typename Machine<T>::Signed>;

 public:
  explicit Decoder(const Format& format) : kind_(format.kind) {
    Format f = format;
    f.rounding = Rounding::NearestEven; // the mode does not change the meaning of codes
    switch (kind_) {
      case Kind::Fixed: new (&fixed_) FixedDecoder<T>(f); break;
      case Kind::Float: new (&float_) FloatDecoder<T>(f); break;
      case Kind::Posit:
        if (Posits::serves(f)) {
          new (&posit_) Posits(f);
          break;
        }
        kind_ = Kind::Table; // T has fewer digits than the codes: use the generic codec
        [[fallthrough]];
      case Kind::Table:
      case Kind::Takum: new (&any_) Format(on_device(f)); break;
    }
  }

  TD_HOST_DEVICE T operator()(typename Machine<T>::Bits code) const {
    switch (kind_) {
      case Kind::Posit: return posit_(code);
      case Kind::Fixed: return fixed_(code);
      case Kind::Float: return float_(code);
      default: return static_cast<T>(decode_any(any_, code));
    }
  }

 private:
  Kind kind_;
  union {
    Posits posit_;
    FixedDecoder<T> fixed_;
    FloatDecoder<T> float_;
    Format any_;
  };
};

// Encodes numbers of T, rounded once in the format's mode. Element i takes its random bits from
// word first + i * step, as on the CPU.
template <typename T>
class Encoder {
  using Bits = typename Machine<T>::Bits;

 public:
  Encoder(const Format& format, const RandomWords& words)
      : format_(on_device(format)),
        words_(words),
        path_(path_of(format)) {
    Format f = format;
    if (path_ == FastPath::Moved) f.rounding = Rounding::NearestEven;
    const bool proportional = path_ == FastPath::Proportional;
    if (path_ == FastPath::None) return;
    if (proportional && f.is_posit())
      new (&drawn_posit_) c10::formats::StochasticPositEncoder<T>(f);
    else if (proportional) new (&drawn_float_) c10::formats::StochasticFloatEncoder<T>(f);
    else if (f.is_posit()) new (&posit_) PositEncoder<T, DirectedMode<T>>(f);
    else if (f.is_fixed()) new (&fixed_) FixedEncoder<T, DirectedMode<T>>(f);
    else new (&float_) FloatEncoder<T, DirectedMode<T>>(f);
  }

  // word: the index of the element's random word.
  TD_HOST_DEVICE uint64_t at_word(T x, uint64_t word) const {
    switch (path_) {
      case FastPath::None: return generic(x, word);
      case FastPath::Proportional: {
        const Bits random = bits(word);
        const auto r = format_.is_posit() ? drawn_posit_(x, random) : drawn_float_(x, random);
        return r.undecided ? generic(x, word) : static_cast<uint64_t>(r.code);
      }
      case FastPath::Coin: return directed(x, Bits{0} - static_cast<Bits>(coin(word)));
      case FastPath::Moved: {
        const uint64_t up = uint64_t{0} - coin(word);
        return c10::formats::CodeMover<uint64_t>(format_)(directed(x, 0), up);
      }
      default: return directed(x, 0);
    }
  }
  TD_HOST_DEVICE uint64_t operator()(T x, int64_t i) const {
    return at_word(x, words_.first + static_cast<uint64_t>(i) * words_.step);
  }

 private:
  // Returns a fast path, if it takes the format; it agrees with the generic codec. If T lacks
  // digits that a code has, there is none.
  static FastPath path_of(const Format& f) {
    if (f.is_table() || f.is_takum()) return FastPath::None;
    const FastPath path = c10::formats::fast_path(f.rounding);
    if (f.random_bits != 0 && f.rounding == Rounding::Stochastic) return FastPath::None;
    if (f.overflow == c10::formats::Overflow::Wrap || sizeof(T) < static_cast<size_t>(f.itemsize()))
      return FastPath::None;
    const bool plain = f.subnormals == c10::formats::Subnormals::Gradual &&
        f.underflow == c10::formats::Underflow::Minpos;
    switch (path) {
      case FastPath::Masks:
      case FastPath::Constant: return path;
      case FastPath::Proportional:
        return c10::formats::StochasticPositEncoder<T>::serves(f) ||
                c10::formats::StochasticFloatEncoder<T>::serves(f)
            ? path
            : FastPath::None;
      case FastPath::Coin: return plain ? path : FastPath::None;
      case FastPath::Moved:
        return c10::formats::CodeMover<uint64_t>::serves(f) ? path : FastPath::None;
      default: return FastPath::None;
    }
  }

  TD_HOST_DEVICE uint64_t coin(uint64_t word) const {
    return c10::formats::random_half(words_.seed.drawn(), word, 0) >> 31;
  }
  TD_HOST_DEVICE Bits bits(uint64_t word) const {
    if constexpr (sizeof(Bits) == 4) return c10::formats::random_half(words_.seed.drawn(), word, 0);
    else return c10::formats::random_word(words_.seed.drawn(), word);
  }
  TD_HOST_DEVICE uint64_t directed(T x, Bits coins) const {
    if (format_.is_posit()) return posit_(x, coins);
    return format_.is_fixed() ? fixed_(x, coins) : float_(x, coins);
  }
  TD_HOST_DEVICE uint64_t generic(T x, uint64_t word) const {
    return encode_any(format_, c10::formats::unpack(static_cast<double>(x)),
                      drawn_word(format_, words_.seed, word));
  }

  Format format_;
  RandomWords words_;
  FastPath path_;
  union {
    PositEncoder<T, DirectedMode<T>> posit_;
    FloatEncoder<T, DirectedMode<T>> float_;
    FixedEncoder<T, DirectedMode<T>> fixed_;
    c10::formats::StochasticPositEncoder<T> drawn_posit_;
    c10::formats::StochasticFloatEncoder<T> drawn_float_;
  };
};

// ---- codes in memory, whose width is known at run time ----

TD_HOST_DEVICE inline uint64_t code_at(const char* at, int width) {
  switch (width) {
    case 1: return *reinterpret_cast<const uint8_t*>(at);
    case 2: return *reinterpret_cast<const uint16_t*>(at);
    case 4: return *reinterpret_cast<const uint32_t*>(at);
    default: return *reinterpret_cast<const uint64_t*>(at);
  }
}
TD_HOST_DEVICE inline void put_code(char* at, int width, uint64_t code) {
  switch (width) {
    case 1: *reinterpret_cast<uint8_t*>(at) = static_cast<uint8_t>(code); return;
    case 2: *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(code); return;
    case 4: *reinterpret_cast<uint32_t*>(at) = static_cast<uint32_t>(code); return;
    default: *reinterpret_cast<uint64_t*>(at) = code;
  }
}
struct CodesIn {
  const void* codes;
  int width;
  TD_HOST_DEVICE uint64_t at(int64_t i) const {
    return code_at(static_cast<const char*>(codes) + i * width, width);
  }
};
struct CodesOut {
  void* codes;
  int width;
  TD_HOST_DEVICE void put(int64_t i, uint64_t code) const {
    put_code(static_cast<char*>(codes) + i * width, width, code);
  }
};

// Replaces NaN by one NaN for every operation. Processors, and the types of one GPU, give NaN
// different signs.
template <typename T>
TD_HOST_DEVICE T with_plain_nan(T x) {
  return x != x ? c10::formats::bits_as<T>(c10::formats::nan_bits<T>()) : x;
}

} // namespace at::formats::cuda
