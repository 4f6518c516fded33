// Runs a kernel over an array so that the compiler vectorises it, and gives it rounding modes as
// constants.
#pragma once
#include <c10/formats/NumberFormat.h>

#include <type_traits>

namespace at::formats::CPU_CAPABILITY {
namespace {

using c10::formats::Rounding;

#define TD_INLINE_LAMBDA __attribute__((always_inline))

// The loop itself. Bounds and pointers are plain locals, because codes are bytes to the compiler
// and may alias anything it sees through a reference. Not inlined: compilers vectorise one loop a
// function, with parameters that are known not to overlap.
template <typename In, typename Out, typename Each>
__attribute__((noinline)) void transform(const In* __restrict in, Out* __restrict out, int64_t n,
                                         Each each) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(each(in[i]));
}

// Calls body with the mode as a constant if FastConstantMode.h knows it; else returns false.
template <typename Body>
bool with_constant_mode(Rounding mode, Body&& body) {
  const auto known = [&](auto constant) {
    if constexpr (c10::formats::fast_path(constant.value) == c10::formats::FastPath::Constant)
      return body(constant);
    else return false;
  };
  switch (mode) {
#define TD_MODE_CASE(enumerator, ...) \
  case Rounding::enumerator: return known(std::integral_constant<Rounding, Rounding::enumerator>());
    AT_FORALL_ROUNDING_MODES(TD_MODE_CASE)
#undef TD_MODE_CASE
  }
  return false;
}

} // namespace
} // namespace at::formats::CPU_CAPABILITY
