// Subnormal machine numbers in a scope, for what is kept beyond the setting that flushes them
// (torch.set_flush_denormal): tables.
#pragma once
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace c10::formats {

// The calling thread's. Elsewhere than on x86-64 there is no such setting of PyTorch's.
class KeptDenormals {
 public:
  KeptDenormals(const KeptDenormals&) = delete;
  KeptDenormals& operator=(const KeptDenormals&) = delete;
#if defined(__SSE__)
  KeptDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ & ~kFlushes); }
  ~KeptDenormals() { _mm_setcsr(before_); }

 private:
  // Results to zero (bit 15), operands as zeros (bit 6).
  static constexpr unsigned kFlushes = 0x8040;
  unsigned before_;
#else
  KeptDenormals() {} // a constructor that does something, to the compiler
#endif
};

} // namespace c10::formats
