// The operations of one, two and three numbers; no other place lists them. Each has a row, and a
// struct of the same name that computes it in every arithmetic of the kernels. Enumerators and
// dispatch expand from the rows, the kernels of CPU and GPU from the structs.
//
//   AT_FORALL_UNARY_OPERATIONS(_), AT_FORALL_BINARY_OPERATIONS(_), AT_FORALL_TERNARY_OPERATIONS(_)
//     rows _(struct, name)
#pragma once
#include <c10/formats/arithmetic/MixedArithmetic.h>
#include <c10/formats/arithmetic/OddArithmetic.h>
#include <c10/formats/arithmetic/WideArithmetic.h>
#include <c10/formats/codec/FastBinary32.h>
#include <c10/formats/sums/ZeroSums.h>

#include <cstdint>

#define AT_FORALL_UNARY_OPERATIONS(_) _(Sqrt, "sqrt")

#define AT_FORALL_BINARY_OPERATIONS(_) \
  _(Add, "add")                        \
  _(Sub, "sub")                        \
  _(Mul, "mul")                        \
  _(Div, "div")

#define AT_FORALL_TERNARY_OPERATIONS(_) \
  _(Fma, "fma")                         \
  _(Addcdiv, "addcdiv")                 \
  _(Addcmul, "addcmul")                 \
  _(Lerp, "lerp")

namespace c10::formats {

#define TD_ROW(name, text) name,
enum class UnaryOp : uint8_t { AT_FORALL_UNARY_OPERATIONS(TD_ROW) };
enum class BinaryOp : uint8_t { AT_FORALL_BINARY_OPERATIONS(TD_ROW) };
enum class TernaryOp : uint8_t { AT_FORALL_TERNARY_OPERATIONS(TD_ROW) };
#undef TD_ROW

namespace operations {

// ---- of one number ----
//
// Each has
//   nearest(x)  in T, to nearest even
//   odd(x)      in T, to odd (OddArithmetic.h)
//   wide(x)     all digits (WideArithmetic.h)

struct Sqrt {
  // Whether the operation halves, adds or subtracts logarithms.
  static constexpr bool kOnLogarithms = true;

  template <typename T>
  TD_INLINE static T nearest(T x) {
    return square_root(x);
  }
  template <typename T>
  TD_INLINE static T odd(T x) {
    return sqrt_odd(x);
  }
  static Unpacked wide(double x) { return sqrt_wide(x); }
};

// ---- of two numbers ----
//
// Each has the same, and may have
//   mixed(x, number, 1 / number), mixed_first(number, x)
//                        with a float64 number (MixedArithmetic.h)
//   odd_of_floats(x, y)  as odd() in float64, for float32 numbers
//   parts(x, y)          the nearest float32 number, and its error
//   both_positive(x, y)  for sums: whether both terms are positive, which decides the sign of a 0

struct Binary {
  static constexpr bool kOnLogarithms = false;
  // Whether finite operands give an infinite result if the divisor is 0.
  static constexpr bool kDivides = false;

  TD_INLINE static MixedResult mixed(float x, double, double) { return {x, ~0U}; }
  TD_INLINE static MixedResult mixed_first(double, float x) { return {x, ~0U}; }
};

// x + y
struct Add : Binary {
  template <typename T>
  TD_INLINE static T nearest(T x, T y) {
    return x + y;
  }
  template <typename T>
  TD_INLINE static T odd(T x, T y) {
    return add_odd(x, y);
  }
  static Unpacked wide(double x, double y) { return add_wide(x, y); }
  TD_INLINE static MixedResult mixed(float x, double number, double) {
    return add_mixed(x, number);
  }
  TD_INLINE static MixedResult mixed_first(double number, float x) { return add_mixed(x, number); }
  TD_INLINE static double odd_of_floats(double x, double y) {
    const double s = x + y;
    return to_odd(s, two_sum_error(x, y, s));
  }
  TD_INLINE static NearestAndRest parts(float x, float y) {
    const float s = x + y;
    return {s, two_sum_error(x, y, s), ~uint32_t{0}};
  }
  template <typename T>
  TD_INLINE static bool both_positive(T x, T y) {
    return is_positive(x) && is_positive(y);
  }
};

// x - y
struct Sub : Binary {
  template <typename T>
  TD_INLINE static T nearest(T x, T y) {
    return x - y;
  }
  template <typename T>
  TD_INLINE static T odd(T x, T y) {
    return add_odd(x, -y);
  }
  static Unpacked wide(double x, double y) { return add_wide(x, -y); }
  TD_INLINE static MixedResult mixed(float x, double number, double) {
    return add_mixed(x, -number);
  }
  TD_INLINE static MixedResult mixed_first(double number, float x) { return add_mixed(-x, number); }
  TD_INLINE static double odd_of_floats(double x, double y) { return Add::odd_of_floats(x, -y); }
  TD_INLINE static NearestAndRest parts(float x, float y) { return Add::parts(x, -y); }
  template <typename T>
  TD_INLINE static bool both_positive(T x, T y) {
    return is_positive(x) && is_positive(-y);
  }
};

// x * y
struct Mul : Binary {
  static constexpr bool kOnLogarithms = true;

  template <typename T>
  TD_INLINE static T nearest(T x, T y) {
    return x * y;
  }
  template <typename T>
  TD_INLINE static T odd(T x, T y) {
    return multiply_odd(x, y);
  }
  static Unpacked wide(double x, double y) { return multiply_wide(x, y); }
  TD_INLINE static MixedResult mixed(float x, double number, double) {
    return multiply_mixed(x, number);
  }
  TD_INLINE static MixedResult mixed_first(double number, float x) {
    return multiply_mixed(x, number);
  }
  // float64 has the product of two float32 numbers.
  TD_INLINE static double odd_of_floats(double x, double y) { return x * y; }
  // The product's error is exact if it is not subnormal, or if a factor is 0.
  TD_INLINE static NearestAndRest parts(float x, float y) {
    const float p = x * y;
    const uint32_t zero = ~(is_nonzero(x) & is_nonzero(y)),
                   normal = ~mask_less<float>(magnitude_bits(p), uint32_t{52} << 23);
    return {p, fused(x, y, -p), zero | normal};
  }
};

// x / y
struct Div : Binary {
  static constexpr bool kOnLogarithms = true;
  static constexpr bool kDivides = true;

  template <typename T>
  TD_INLINE static T nearest(T x, T y) {
    return x / y;
  }
  template <typename T>
  TD_INLINE static T odd(T x, T y) {
    return divide_odd(x, y);
  }
  static Unpacked wide(double x, double y) { return divide_wide(x, y); }
  TD_INLINE static MixedResult mixed(float x, double number, double reciprocal) {
    return divide_mixed(x, number, reciprocal);
  }
  TD_INLINE static MixedResult mixed_first(double number, float x) {
    return divide_number_mixed(number, x);
  }
  TD_INLINE static double odd_of_floats(double x, double y) {
    const double q = x / y;
    const uint64_t remainder = bits_as<uint64_t>(fused(-q, y, x));
    return to_odd(q, bits_as<double>(remainder ^ (bits_as<uint64_t>(y) & (uint64_t{1} << 63))));
  }
};

// ---- of three numbers, and of s ----
//
// Each is a sum. It has odd(), wide() and both_positive(), and
//   mixed(number, a, b, c, sum)  for float32 values, with the number instead of the operand
//                                kNumber; calls sum(number, x, y) for number * x + y
// An operation that float64 has as a single instruction also has nearest().

enum class Place : uint8_t { A, C, S };

struct Ternary {
  // The operand that a number replaces among float32 values; the others are all values.
  static constexpr Place kNumber = Place::S;
  // Whether it rounds nothing before its sum except s * a * b, so that float32 may compute it.
  static constexpr bool kProduct = false;
  static constexpr bool kDivides = false;
  // Whether c comes first in stock PyTorch, whose result takes its layout.
  static constexpr bool kAddsToC = true;
};

// a * b + c
struct Fma : Ternary {
  static constexpr Place kNumber = Place::A;
  static constexpr bool kProduct = true;

  TD_INLINE static double nearest(double a, double b, double c) { return fused(a, b, c); }
  template <typename T>
  TD_INLINE static T odd(T a, T b, T c, T = 1) {
    return fma_odd(a, b, c);
  }
  static Unpacked wide(double a, double b, double c, double = 1) { return fma_wide(a, b, c); }
  template <typename Sum = FusedSum>
  TD_INLINE static auto mixed(double number, float, float b, float c, Sum sum = {}) {
    return sum(number, b, c);
  }
  template <typename T>
  TD_INLINE static bool both_positive(T a, T b, T c, T = 1) {
    return is_positive(c) && is_positive(a) == is_positive(b);
  }
};

// c + s * (a / b)
struct Addcdiv : Ternary {
  static constexpr bool kDivides = true;

  template <typename T>
  TD_INLINE static T odd(T a, T b, T c, T s) {
    return fma_odd(s, a / b, c);
  }
  static Unpacked wide(double a, double b, double c, double s) { return addcdiv_wide(a, b, c, s); }
  template <typename Sum = FusedSum>
  TD_INLINE static auto mixed(double number, double a, double b, float c, Sum sum = {}) {
    return sum(number, a / b, c);
  }
  template <typename T>
  TD_INLINE static bool both_positive(T a, T b, T c, T s) {
    return is_positive(c) && (is_positive(a) == is_positive(b)) == is_positive(s);
  }
};

// c + s * (a * b), for s other than 1: see fuse_unscaled()
struct Addcmul : Ternary {
  static constexpr bool kProduct = true;

  template <typename T>
  TD_INLINE static T odd(T a, T b, T c, T s) {
    return fma_odd(s, multiply_odd(a, b), c);
  }
  static Unpacked wide(double a, double b, double c, double s) { return addcmul_wide(a, b, c, s); }
  template <typename Sum = FusedSum>
  TD_INLINE static auto mixed(double number, double a, double b, float c, Sum sum = {}) {
    return sum(number, a * b, c);
  }
  template <typename T>
  TD_INLINE static bool both_positive(T a, T b, T c, T s) {
    return Addcdiv::both_positive(a, b, c, s);
  }
};

// a + c * (b - a)
struct Lerp : Ternary {
  static constexpr Place kNumber = Place::C;
  static constexpr bool kAddsToC = false;

  template <typename T>
  TD_INLINE static T odd(T a, T b, T c, T) {
    return fma_odd(c, b - a, a);
  }
  static Unpacked wide(double a, double b, double c, double) { return lerp_wide(a, b, c); }
  template <typename Sum = FusedSum>
  TD_INLINE static auto mixed(double number, float a, double b, float, Sum sum = {}) {
    return sum(number, b - a, a);
  }
  template <typename T>
  TD_INLINE static bool both_positive(T a, T b, T c, T) {
    return is_positive(a) && is_positive(c) == is_positive(b - a);
  }
};

} // namespace operations

// ---- dispatch ----

#define TD_CASE(name, text) \
  case Op::name: return body(operations::name());

// Calls body with the operation's struct.
template <typename Body>
TD_INLINE decltype(auto) with_operation(UnaryOp op, const Body& body) {
  using Op = UnaryOp;
  switch (op) { AT_FORALL_UNARY_OPERATIONS(TD_CASE) }
  __builtin_unreachable();
}
template <typename Body>
TD_INLINE decltype(auto) with_operation(BinaryOp op, const Body& body) {
  using Op = BinaryOp;
  switch (op) { AT_FORALL_BINARY_OPERATIONS(TD_CASE) }
  __builtin_unreachable();
}
template <typename Body>
TD_INLINE decltype(auto) with_operation(TernaryOp op, const Body& body) {
  using Op = TernaryOp;
  switch (op) { AT_FORALL_TERNARY_OPERATIONS(TD_CASE) }
  __builtin_unreachable();
}
#undef TD_CASE

#define TD_NAME(name, text) \
  case Op::name: return text;
constexpr const char* name_of(BinaryOp op) {
  using Op = BinaryOp;
  switch (op) { AT_FORALL_BINARY_OPERATIONS(TD_NAME) }
  return "";
}
constexpr const char* name_of(TernaryOp op) {
  using Op = TernaryOp;
  switch (op) { AT_FORALL_TERNARY_OPERATIONS(TD_NAME) }
  return "";
}
#undef TD_NAME

// The operation, or the fused one that it equals if s is 1.
template <typename T>
TD_HOST_DEVICE constexpr TernaryOp fuse_unscaled(TernaryOp op, T s) {
  return op == TernaryOp::Addcmul && s == 1 ? TernaryOp::Fma : op;
}

// Whether both terms of the sum are positive.
template <typename T>
TD_HOST_DEVICE inline bool terms_are_positive(TernaryOp op, T a, T b, T c, T s) {
  return with_operation(op, [=](auto f) { return f.both_positive(a, b, c, s); });
}

} // namespace c10::formats
