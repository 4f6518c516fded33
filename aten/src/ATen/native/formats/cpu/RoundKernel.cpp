// Rounds machine numbers to values of a format, without codes.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <ATen/native/formats/cpu/Loops.h>
#include <c10/formats/codec/FastRound.h>

namespace at::formats::CPU_CAPABILITY {
namespace {

using namespace c10::formats;

template <typename T>
__attribute__((noinline)) bool round_posits(const T* __restrict values, T* __restrict results,
                                            int64_t n, NearestPositRounder<T> rounder) {
  typename Machine<T>::Bits undecided = 0;
  for (int64_t i = 0; i < n; ++i) results[i] = rounder(values[i], undecided);
  return undecided >> (Machine<T>::width - 1) == 0;
}

template <typename Rounder, typename T>
bool round_by(const Format& f, const T* values, T* results, int64_t n) {
  if (!Rounder::serves(f)) return false;
  transform(values, results, n, [r = Rounder(f)](T x) TD_INLINE_LAMBDA { return r(x); });
  return true;
}

template <typename T>
bool round_all(const Format& f, const T* values, T* results, int64_t n) {
  if (NearestPositRounder<T>::serves(f))
    return round_posits(values, results, n, NearestPositRounder<T>(f));
  const auto with = [=](auto mode) {
    return round_by<ConstantModeFloatRounder<T, mode.value>>(f, values, results, n) ||
        round_by<ConstantModeFixedRounder<T, mode.value>>(f, values, results, n);
  };
  return with_constant_mode(f.rounding, with);
}

} // namespace

void fill_round(CpuKernels& k) {
  k.on_float.round = &round_all<float>;
  k.on_double.round = &round_all<double>;
}

} // namespace at::formats::CPU_CAPABILITY
