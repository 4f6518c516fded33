// The bins of one thread that counts roundings, before they are added to others' counts.
#pragma once
#include <ATen/Observation.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace at::formats {

class CountBuffer {
 public:
  // Counts as many of n numbers as there is room for, and returns that number.
  template <typename T>
  int64_t count(const CountLimits& limits, const T* exact, const T* rounded, int64_t n) {
    const int64_t m = std::min(n, kMaxCounted - pending_);
    if (m > 0) host_kernels().count(limits, exact, rounded, m, *work_);
    pending_ += m;
    return m;
  }

  bool is_empty() const { return pending_ == 0; }

  // Adds what was counted to `all`, and makes room.
  void empty(Counts& all) {
    CountWork& w = *work_;
    Counts found;
    found.elements = static_cast<uint64_t>(pending_);
    found.flags = std::exchange(w.flags, CountFlags());
    constexpr uint64_t kSquares = (uint64_t{1} << kCountShift) - 1;
    for (int stretch = 0; stretch < kCountBins / kTouchedBins; ++stretch) {
      if (!w.touched[stretch]) continue;
      for (int b = stretch * kTouchedBins; b < (stretch + 1) * kTouchedBins; ++b) {
        if ((w.exact[0][b] | w.exact[1][b] | w.error[0][b] | w.error[1][b]) == 0) continue;
        CountBin& bin = found.bins[b];
        for (int lane = 0; lane < 2; ++lane) {
          bin.count += w.exact[lane][b] >> kCountShift;
          bin.squares += w.exact[lane][b] & kSquares;
          bin.errors += w.error[lane][b] & kSquares;
          w.exact[lane][b] = w.error[lane][b] = 0;
        }
      }
    }
    std::memset(w.touched, 0, sizeof w.touched);
    pending_ = 0;
    all.add(found);
  }

 private:
  int64_t pending_{0};
  std::unique_ptr<CountWork> work_{std::make_unique<CountWork>()};
};

} // namespace at::formats
