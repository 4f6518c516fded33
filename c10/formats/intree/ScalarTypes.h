// The built-in formats as types of PyTorch's own list (ScalarType), inside a PyTorch tree: the C++
// type of an element, like c10::Half, and all that PyTorch's templates need of such a type.
// tools/intree puts this header in front of that list; the rows are made from BuiltinFormats.h.
// C++17, because every header of PyTorch includes it; it includes nothing of PyTorch.
#pragma once
#include <c10/formats/intree/ScalarTypeRows.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <type_traits>

#define TD_EXPORT __attribute__((visibility("default")))

namespace c10 {

enum class ScalarType : int8_t;
enum class DeviceType : int8_t;
template <typename dest_t, typename src_t>
struct static_cast_with_inter_type;

namespace formats {

// --- numbers ---
// Built-in formats are enumerators, in the order of BuiltinFormats.h. Run-time formats have the
// numbers from 64 to 127: ScalarType is an int8, and its own list ends before 64.
inline constexpr int kFirstRunTimeNumber = 64;
inline constexpr int kEndOfNumbers = 128;

// A template, because the list of enumerators follows this header.
template <typename T>
constexpr bool is_builtin_type(T type) {
  static_assert(static_cast<int>(T::NumOptions) <= kFirstRunTimeNumber,
                "formats made at run time have the numbers from 64 on");
  return type >= T::TD_FIRST_FORMAT && type <= T::TD_LAST_FORMAT;
}
template <typename T>
constexpr bool is_format_type(T type) {
  return is_builtin_type(type) || static_cast<int>(type) >= kFirstRunTimeNumber;
}
// The same for the number that a TypeMeta holds.
constexpr bool is_run_time_number(unsigned number) {
  return number >= unsigned{kFirstRunTimeNumber} && number < unsigned{kEndOfNumbers};
}

// Facts of run-time formats, which a switch over enumerators cannot know. nullptr: no such format,
// or a program without libc10 (headers alone).
struct RunTimeType {
  const char* name;
  uint8_t itemsize;
  bool is_signed;
};
TD_EXPORT __attribute__((weak)) const RunTimeType* run_time_type(int number) noexcept;

inline const RunTimeType* find_run_time_type(int number) {
  return run_time_type != nullptr && is_run_time_number(static_cast<unsigned>(number))
      ? run_time_type(number)
      : nullptr;
}
template <typename T>
const char* name_or(T type, const char* otherwise) {
  const RunTimeType* found = find_run_time_type(static_cast<int>(type));
  return found ? found->name : otherwise;
}
template <typename T>
uint8_t run_time_itemsize(T type) {
  const RunTimeType* found = find_run_time_type(static_cast<int>(type));
  return found ? found->itemsize : uint8_t{0};
}
template <typename T>
bool is_signed_format(T type) {
  const RunTimeType* found = find_run_time_type(static_cast<int>(type));
  return found ? found->is_signed : true;
}

// torch.finfo of a format. `what` is one of PyTorch's words: epsilon, max, lowest, min (the
// smallest normal number), digits10 (resolution).
TD_EXPORT double finfo(ScalarType type, const char* what);
// "posit16es2", as in torch.
TD_EXPORT const char* dtype_name(ScalarType type);
// A format with bool or an integer gives the format; with a stock floating or complex type, the
// stock type. Two formats raise.
TD_EXPORT ScalarType promote_types(ScalarType a, ScalarType b);
// Stores a number of any format in memory, rounded once and to nearest; loads its exact value.
TD_EXPORT void store_element(void* data, ScalarType type, double value);
TD_EXPORT double load_element(const void* data, ScalarType type);

// --- elements ---
TD_EXPORT double element_value(int row, uint64_t code);
TD_EXPORT uint64_t element_code(int row, double value);
TD_EXPORT uint64_t element_code(int row, int64_t value);
TD_EXPORT uint64_t element_code(int row, uint64_t value);

enum class Limit : uint8_t { Largest, Lowest, SmallestNormal, Epsilon, Infinity, NaN };
TD_EXPORT uint64_t limit_code(int row, Limit which);

// One number of a built-in format, by its row. Its value is exactly a double, so it converts to
// double implicitly and is computed with as one. A conversion to an element rounds, once and to
// nearest, and needs a cast.
template <int Row, typename Code>
struct Element {
  using code_t = Code;
  using compute_t = std::conditional_t<sizeof(Code) <= 2, float, double>; // exact for every value
  static constexpr int row = Row;

  Code code; // not initialised by default, as in c10::Half: an array of them costs no time

  Element() = default;
  explicit Element(double value) : code(static_cast<Code>(element_code(Row, value))) {}
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
  explicit Element(T value)
      : code(static_cast<Code>(element_code(
            Row,
            static_cast<std::conditional_t<std::is_unsigned_v<T>, uint64_t, int64_t>>(value)))) {}

  static Element from_code(uint64_t code) {
    Element e;
    e.code = static_cast<Code>(code);
    return e;
  }
  operator double() const { return element_value(Row, code); }
  bool isnan() const {
    const double value = *this;
    return value != value;
  }
  bool isinf() const {
    const double value = *this;
    return value - value != 0 && !(value != value);
  }
};

template <int Row, typename Code>
std::ostream& operator<<(std::ostream& out, const Element<Row, Code>& e) {
  return out << static_cast<double>(e);
}

template <typename T>
struct is_element : std::false_type {};
template <int Row, typename Code>
struct is_element<Element<Row, Code>> : std::true_type {};

// Rounds to odd in float32; the result rounds to at most 22 bits as `value` does.
inline float float_to_odd(double value) {
  float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !(value - value == 0) || !(nearest - nearest == 0))
    return nearest;
  uint32_t bits = 0;
  std::memcpy(&bits, &nearest, sizeof bits);
  if (bits & 1) return nearest;
  // The other neighbour of `value`, whose last bit is 1. Away from zero is one code up, for either
  // sign.
  const bool too_large =
      (nearest < 0 ? -static_cast<double>(nearest) : nearest) > (value < 0 ? -value : value);
  bits = too_large ? bits - 1 : bits + 1;
  std::memcpy(&nearest, &bits, sizeof bits);
  return nearest;
}

template <typename T, typename = void>
struct part_of {
  static T convert(double value) {
    if constexpr (std::is_arithmetic_v<T>) {
      return static_cast_with_inter_type<T, double>::apply(value);
    } else if constexpr (is_element<T>::value) {
      return static_cast<T>(value);
    } else { // Half, BFloat16, a float8: from a float32
      return static_cast<T>(float_to_odd(value));
    }
  }
};
template <typename T> // complex
struct part_of<T, std::void_t<typename T::value_type>> {
  static T convert(double value) {
    using Part = typename T::value_type;
    return T(part_of<Part>::convert(value), Part(0));
  }
};

} // namespace formats

// c10::convert from an element: by its exact value, rounded once. The second and third exclude
// other specialisations.
template <typename dest_t, int Row, typename Code>
struct static_cast_with_inter_type<dest_t, formats::Element<Row, Code>> {
  static dest_t apply(formats::Element<Row, Code> src) {
    return formats::part_of<dest_t>::convert(src);
  }
};
template <int Row, typename Code>
struct static_cast_with_inter_type<bool, formats::Element<Row, Code>> {
  static bool apply(formats::Element<Row, Code> src) {
    return formats::part_of<bool>::convert(src);
  }
};
template <int Row, typename Code>
struct static_cast_with_inter_type<uint8_t, formats::Element<Row, Code>> {
  static uint8_t apply(formats::Element<Row, Code> src) {
    return formats::part_of<uint8_t>::convert(src);
  }
};

} // namespace c10

namespace at {

template <typename scalar_t>
struct OpMathType;
template <int Row, typename Code>
struct OpMathType<c10::formats::Element<Row, Code>> {
  using type = typename c10::formats::Element<Row, Code>::compute_t;
};

template <typename T, c10::DeviceType D>
struct AccumulateTypeDevice;
template <int Row, typename Code, c10::DeviceType D>
struct AccumulateTypeDevice<c10::formats::Element<Row, Code>, D> {
  using type = double;
};

template <int Row, typename Code>
inline bool _isnan(c10::formats::Element<Row, Code> value) {
  return value.isnan();
}
template <int Row, typename Code>
inline bool _isinf(c10::formats::Element<Row, Code> value) {
  return value.isinf();
}

} // namespace at

template <int Row, typename Code>
class std::numeric_limits<c10::formats::Element<Row, Code>> {
  using Element = c10::formats::Element<Row, Code>;
  static Element limit(c10::formats::Limit which) {
    return Element::from_code(c10::formats::limit_code(Row, which));
  }

 public:
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = true;
  static constexpr bool is_integer = false;
  static constexpr bool is_exact = false;
  // posits come first, and have no infinity
  static constexpr bool has_infinity = Row >= TD_POSIT_ROWS;
  static constexpr bool has_quiet_NaN = true;
  static constexpr bool has_signaling_NaN = false;
  static constexpr bool is_bounded = true;
  static constexpr bool is_modulo = false;
  static constexpr int radix = 2;
  static constexpr int digits = c10::formats::kElementDigits[Row];
  static constexpr int digits10 = (digits - 1) * 30103 / 100000;

  static Element min() { return limit(c10::formats::Limit::SmallestNormal); }
  static Element max() { return limit(c10::formats::Limit::Largest); }
  static Element lowest() { return limit(c10::formats::Limit::Lowest); }
  static Element epsilon() { return limit(c10::formats::Limit::Epsilon); }
  static Element infinity() { return limit(c10::formats::Limit::Infinity); }
  static Element quiet_NaN() { return limit(c10::formats::Limit::NaN); }
};
