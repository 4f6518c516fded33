// Keeps subnormal machine numbers in a scope, for tables: they outlive the setting that flushes
// subnormals (torch.set_flush_denormal).
#pragma once
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace c10::formats {

// For the calling thread. PyTorch has the setting on x86-64 only.
class KeptDenormals {
 public:
  KeptDenormals(const KeptDenormals&) = delete;
  KeptDenormals& operator=(const KeptDenormals&) = delete;
#if defined(__SSE__)
  KeptDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ & ~kFlushes); }
  ~KeptDenormals() { _mm_setcsr(before_); }

 private:
  // Flush results to zero (bit 15), read operands as zeros (bit 6).
  static constexpr unsigned kFlushes = 0x8040;
  unsigned before_;
#else
  KeptDenormals() {} // makes the compiler count a variable of this type as used
#endif
};

} // namespace c10::formats
