// How a kernel file runs over an array so that the compiler vectorises it, and rounding modes as constants.
#pragma once
#include <c10/formats/NumberFormat.h>

#include <type_traits>

namespace at::formats::CPU_CAPABILITY {
namespace {

using c10::formats::Rounding;

#define TD_INLINE_LAMBDA __attribute__((always_inline))

// The loop itself, with its bounds and pointers as plain locals: codes are bytes to the compiler, which may alias anything it sees
// through a reference. Not inlined: one loop a function, with parameters that are known not to overlap, is what compilers vectorise.
template <typename In, typename Out, typename Each>
__attribute__((noinline)) void transform(const In* __restrict in, Out* __restrict out, int64_t n, Each each) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(each(in[i]));
}

// Calls body with a deterministic mode other than nearest even as a constant.
template <typename Body>
bool with_directed_mode(Rounding mode, Body&& body) {
  switch (mode) {
    case Rounding::NearestZero: return body(std::integral_constant<Rounding, Rounding::NearestZero>());
    case Rounding::NearestAway: return body(std::integral_constant<Rounding, Rounding::NearestAway>());
    case Rounding::Up: return body(std::integral_constant<Rounding, Rounding::Up>());
    case Rounding::Down: return body(std::integral_constant<Rounding, Rounding::Down>());
    case Rounding::TowardZero: return body(std::integral_constant<Rounding, Rounding::TowardZero>());
    case Rounding::ToOdd: return body(std::integral_constant<Rounding, Rounding::ToOdd>());
    default: return false;
  }
}

} // namespace
} // namespace at::formats::CPU_CAPABILITY
