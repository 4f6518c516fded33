// Corrects results of functions in float64 where float64 lacks the exact one (FunctionEnds.h), in
// one pass, in place. Elementary.cpp does the same by stock operators for tensors that this loop
// does not take.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <ATen/native/formats/cpu/Loops.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace at::formats::CPU_CAPABILITY {
namespace {

using c10::formats::Approach;
using c10::formats::Near;
using c10::formats::Side;
using c10::formats::Tail;

// operands, results and corrected values of a block stay in the innermost cache
constexpr int64_t kBlock = 512;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline bool counts(double operand) {
  return (std::abs(operand) < kInfinity) & (operand != 0);
}

template <Near near>
inline double place_of(double result, double operand) {
  switch (near) {
    case Near::Operand: return operand;
    case Near::HalfOperand: return operand * 0.5;
    case Near::ThreeFifths: return operand * 3 / 5;
    case Near::One: return std::copysign(1.0, result);
    case Near::Half: return 0.5;
    default: return 2.0;
  }
}

// The bits of a finite number's neighbours: std::nextafter() without a branch.
inline int64_t above(int64_t bits) {
  const int64_t away = bits >= 0 ? bits + 1 : bits - 1;
  return (bits << 1) == 0 ? 1 : away;
}
inline int64_t below(int64_t bits) {
  const int64_t away = bits >= 0 ? bits - 1 : bits + 1;
  return (bits << 1) == 0 ? std::numeric_limits<int64_t>::min() + 1 : away;
}

template <Side side>
inline double beside(double place, double operand) {
  const auto bits = std::bit_cast<int64_t>(place);
  const bool positive = std::bit_cast<int64_t>(operand) >= 0;
  switch (side) {
    case Side::Above: return std::bit_cast<double>(above(bits));
    case Side::Below: return std::bit_cast<double>(below(bits));
    case Side::Inwards: return std::bit_cast<double>((bits << 1) == 0 ? 0 : bits - 1);
    case Side::Outwards: return std::bit_cast<double>(bits + 1);
    case Side::AsOperand: return std::bit_cast<double>(positive ? above(bits) : below(bits));
    default: return std::bit_cast<double>(positive ? below(bits) : above(bits));
  }
}

// `results`: as the function left them. `values`: as the previous limits left them.
template <Near near, Side side>
__attribute__((noinline)) void put_beside(const double* __restrict operands,
                                          const double* __restrict results,
                                          double* __restrict values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double x = operands[i], v = values[i], place = place_of<near>(results[i], x);
    // Joined by & so that compilers vectorise it. The operands have names, because clang takes a
    // call next to & for a mistyped &&.
    const bool near_place = std::abs(v - place) <= std::abs(place) * FunctionEnds::kNearness;
    const bool counted = counts(x), finite = std::abs(place) < kInfinity;
    values[i] = near_place & counted & finite ? beside<side>(place, x) : v;
  }
}

template <Near near>
void put_beside(Side side, const double* operands, const double* results, double* values,
                int64_t n) {
  switch (side) {
    case Side::Above: return put_beside<near, Side::Above>(operands, results, values, n);
    case Side::Below: return put_beside<near, Side::Below>(operands, results, values, n);
    case Side::Inwards: return put_beside<near, Side::Inwards>(operands, results, values, n);
    case Side::Outwards: return put_beside<near, Side::Outwards>(operands, results, values, n);
    case Side::AsOperand: return put_beside<near, Side::AsOperand>(operands, results, values, n);
    case Side::AgainstOperand:
      return put_beside<near, Side::AgainstOperand>(operands, results, values, n);
  }
}

void put_beside(const Approach& limit, const double* operands, const double* results,
                double* values, int64_t n) {
  switch (limit.near) {
    case Near::Operand: return put_beside<Near::Operand>(limit.side, operands, results, values, n);
    case Near::HalfOperand:
      return put_beside<Near::HalfOperand>(limit.side, operands, results, values, n);
    case Near::ThreeFifths:
      return put_beside<Near::ThreeFifths>(limit.side, operands, results, values, n);
    case Near::One: return put_beside<Near::One>(limit.side, operands, results, values, n);
    case Near::Half: return put_beside<Near::Half>(limit.side, operands, results, values, n);
    case Near::Two: return put_beside<Near::Two>(limit.side, operands, results, values, n);
  }
}

template <Tail tail>
__attribute__((noinline)) void put_within(const double* __restrict operands,
                                          double* __restrict values, int64_t n) {
  constexpr double kSmallest = std::numeric_limits<double>::denorm_min(),
                   kLargest = std::numeric_limits<double>::max();
  for (int64_t i = 0; i < n; ++i) {
    const double x = operands[i], v = values[i];
    if constexpr (tail == Tail::ZerosAlone) {
      values[i] = (x == 0) & (v == 0) ? kSmallest : v;
    } else {
      const double least = tail == Tail::NegativeZeros ? -kSmallest : std::copysign(kSmallest, v);
      const double finite = std::abs(v) == kInfinity ? std::copysign(kLargest, v) : v;
      const double end = v == 0 ? least : finite;
      values[i] = counts(x) ? end : v;
    }
  }
}

void put_ends(const FunctionEnds& ends, const double* operands, double* values, int64_t n) {
  double results[kBlock];
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t count = n - first < kBlock ? n - first : kBlock;
    const double* x = operands + first;
    double* v = values + first;
    if (ends.count > 0) std::memcpy(results, v, static_cast<size_t>(count) * sizeof(double));
    for (int i = 0; i < ends.count; ++i) put_beside(ends.limits[i], x, results, v, count);
    if (!ends.ranged) continue;
    switch (ends.tail) {
      case Tail::Signed: put_within<Tail::Signed>(x, v, count); break;
      case Tail::NegativeZeros: put_within<Tail::NegativeZeros>(x, v, count); break;
      case Tail::ZerosAlone: put_within<Tail::ZerosAlone>(x, v, count); break;
    }
  }
}

} // namespace

void fill_ends(CpuKernels& kernels) {
  kernels.put_ends = &put_ends;
}

} // namespace at::formats::CPU_CAPABILITY
