// One call of an elementwise operator on the CPU, whoever splits its memory: TensorIterator, or a
// parallel loop over contiguous codes. Included by Elementwise.cpp alone.
#pragma once
#include <ATen/FormatRounding.h>
#include <ATen/FormatWrapper.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Observation.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/formats/elementwise/Elementary.h>
#include <ATen/native/formats/elementwise/ElementwiseLoops.h>
#include <ATen/native/formats/elementwise/FillInfinity.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/ops/empty.h>
#include <c10/formats/codec/KeptDenormals.h>

#include <array>
#include <atomic>
#include <cfenv>
#include <cstring>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace at::formats::elementwise_loops {

inline const char* name_of_division(const UnaryBlocks&) {
  return nullptr;
}
template <typename Operator>
const char* name_of_division(const Operator& o) {
  const bool divides = with_operation(o.op, [](auto f) { return f.kDivides; });
  return divides ? name_of(o.op) : nullptr;
}

// The processor's flag for a finite nonzero number divided by 0 (not 0 / 0): it needs no pass over
// the operands. (fenv.h's functions take longer.)
class DivisionByZero {
 public:
#if defined(__SSE2__)
  static constexpr unsigned kFlag = 1U << 2; // ZE of MXCSR
  DivisionByZero() : before_(_mm_getcsr()) {
    if (before_ & kFlag) _mm_setcsr(before_ & ~kFlag);
  }
  ~DivisionByZero() {
    if (before_ & kFlag) _mm_setcsr(_mm_getcsr() | kFlag);
  }
  static bool happened() { return _mm_getcsr() & kFlag; }

 private:
  unsigned before_;
#else
  DivisionByZero() : before_(std::fetestexcept(FE_DIVBYZERO)) { std::feclearexcept(FE_DIVBYZERO); }
  ~DivisionByZero() {
    if (before_) std::feraiseexcept(FE_DIVBYZERO);
  }
  static bool happened() { return std::fetestexcept(FE_DIVBYZERO); }

 private:
  int before_;
#endif
};

// The recorder of a call that writes to `origin`. An optimizer's result belongs to the parameter
// whose state is the first operand.
inline Recorder recorder_of_call(const Target& target, const char* origin, const Operand& first) {
  const bool updating = observing() && observed_thread().updating && first.tensor.defined();
  return recorder(target.entry.format, origin,
                  updating ? first.tensor.unsafeGetTensorImpl()->data() : nullptr);
}

template <size_t N, typename Operator>
class CpuCall {
 public:
  // origin: the start of the result's memory. Draws the call's random words.
  CpuCall(const std::array<const Operand*, N>& operands, const Target& target, const Operator& op,
          const Format& out_format, Way way, const char* origin)
      : operands_(operands),
        op_(op),
        entry_(target.entry),
        out_format_(out_format),
        way_(way),
        origin_(origin),
        kernels_(kernels(c10::kCPU, "arithmetic")),
        seed_(next_words(out_format).seed),
        seen_(recorder_of_call(target, origin, *operands[0])),
        division_(out_format.infinity_is_nan() ? name_of_division(op) : nullptr) {}

  // Computes n elements. data, strides: of the result and of the operands that are tensors, as
  // TensorIterator gives them.
  void run(char** data, const int64_t* strides, int64_t n) {
    if (!division_) return run_loop(data, strides, n);
    const DivisionByZero watch;
    run_loop(data, strides, n);
    if (DivisionByZero::happened()) divided_by_zero_.store(true, std::memory_order_relaxed);
  }

  // After the last element: warns if there was a division by zero that made NaN.
  void finish() const {
    if (divided_by_zero_) tell_of_infinity(division_, entry_);
  }

 private:
  void run_loop(char** data, const int64_t* strides, int64_t n) const {
    std::array<Source, N> sources;
    int argument = 1;
    for (size_t j = 0; j < N; ++j) {
      const Operand& o = *operands_[j];
      if (!o.tensor.defined()) {
        sources[j] = {nullptr, nullptr, 0, o.number};
      } else {
        sources[j] = {is_format_tensor(o.tensor) ? &entry_of(o.tensor).format : nullptr,
                      data[argument], strides[argument], 0};
        ++argument;
      }
    }
    const CpuKernels& k = kernels_;
    const Sink sink{out_format_, data[0], strides[0], origin_, seed_, seen_};
    switch (way_) {
      case Way::InFloat: return run_blocks<float, Way::InFloat>(k, sources, sink, n, op_);
      case Way::Mixed: return run_blocks<float, Way::Mixed>(k, sources, sink, n, op_);
      case Way::InDouble: return run_blocks<double, Way::InDouble>(k, sources, sink, n, op_);
      case Way::Wide: return run_blocks<double, Way::Wide>(k, sources, sink, n, op_);
      case Way::Binary32: return run_binary32(k, sources, sink, n, op_);
    }
  }

  const std::array<const Operand*, N>& operands_;
  const Operator& op_;
  const FormatEntry& entry_;
  const Format& out_format_;
  Way way_;
  const char* origin_;
  const CpuKernels& kernels_;
  Seed seed_;
  Recorder seen_;
  const char* division_;
  std::atomic<bool> divided_by_zero_{false};
};

// Whether the tensors of a call are contiguous format tensors of the same sizes.
template <size_t N>
bool are_contiguous(const std::array<const Operand*, N>& operands, const Target& target) {
  const at::Tensor* first = nullptr;
  const auto fits = [&](const at::Tensor& t) {
    if (!t.defined()) return true;
    if (!first) first = &t;
    return is_format_tensor(t) && !is_wrapper(t) && t.is_contiguous() &&
        t.sizes() == first->sizes();
  };
  return fits(target.existing) &&
      std::all_of(operands.begin(), operands.end(),
                  [&](const Operand* o) { return fits(o->tensor); });
}

// The codes of all results of two operands in one format of 8 bits, by both codes. Undefined for
// other calls, and until as many elements were computed as pay for it.
template <size_t N, typename Operator>
at::Tensor table_of_pairs(const std::array<const Operand*, N>&, const Target&, const Operator&,
                          const Format&, Way, int64_t) {
  return {};
}
inline at::Tensor table_of_pairs(const std::array<const Operand*, 2>& operands,
                                 const Target& target, const BinaryBlocks& op, const Format& f,
                                 Way way, int64_t elements) {
  constexpr int64_t codes = 256, entries = codes * codes;
  static constexpr char functions[] = {0, 0, 0, 0}; // their addresses stand for operations
  const auto in_format = [&](const Operand* o) {
    return o->tensor.defined() && &entry_of(o->tensor) == &target.entry;
  };
  // Floats are computed as fast as they are looked up.
  const bool computed = f.kind == c10::formats::Kind::Float && f.rounding == Rounding::NearestEven;
  if (elements < entries || f.itemsize() != 1 || computed || observing() ||
      c10::formats::is_stochastic(f.rounding) || (f.infinity_is_nan() && name_of_division(op)) ||
      !in_format(operands[0]) || !in_format(operands[1]))
    return {};
  const FunctionKey key{
      &functions[static_cast<size_t>(op.op)], {}, target.entry.serial, f.rounding};
  auto [table, due] = find_table(key, elements, 4 * entries);
  if (table.defined() || !due) return table;
  const c10::formats::KeptDenormals kept; // whatever the caller's processor flushes
  table = at::empty({entries + kPairPadding}, at::TensorOptions().dtype(c10::ScalarType::Byte));
  uint8_t *results = table.mutable_data_ptr<uint8_t>(), high[codes], low[codes];
  std::memset(results + entries, 0, kPairPadding);
  for (int64_t c = 0; c < codes; ++c) low[c] = static_cast<uint8_t>(c);
  CpuCall<2, BinaryBlocks> call(operands, target, op, f, way, reinterpret_cast<char*>(results));
  for (int64_t c = 0; c < codes; ++c) {
    std::memset(high, static_cast<int>(c), codes);
    char* data[] = {reinterpret_cast<char*>(results + c * codes), reinterpret_cast<char*>(high),
                    reinterpret_cast<char*>(low)};
    constexpr int64_t strides[] = {1, 1, 1};
    call.run(data, strides, codes);
  }
  keep_table(key, table);
  return table;
}

// A call whose tensors are contiguous. It has TensorIterator's results, errors and threads; to make
// a TensorIterator and its tensors takes longer than to compute a few elements.
template <size_t N, typename Operator>
at::Tensor run_contiguous(const std::array<const Operand*, N>& operands, const Target& target,
                          const Operator& op, const Format& out_format, Way way) {
  at::Tensor out = target.existing;
  for (const Operand* o : operands) {
    if (!o->tensor.defined()) continue;
    if (target.existing.defined()) at::assert_no_partial_overlap(out, o->tensor);
    else if (!out.defined()) out = empty_format(o->tensor.sizes(), target.entry, c10::kCPU);
  }
  // the result first: to write to memory that is shared until then moves it
  std::array<char*, N + 1> data{static_cast<char*>(out.mutable_data_ptr())};
  std::array<int64_t, N + 1> strides{out_format.itemsize()};
  size_t tensors = 1;
  for (const Operand* o : operands) {
    if (!o->tensor.defined()) continue;
    // only read
    data[tensors] = const_cast<char*>(static_cast<const char*>(o->tensor.const_data_ptr()));
    strides[tensors] = entry_of(o->tensor).format.itemsize();
    ++tensors;
  }
  const at::Tensor table = table_of_pairs(operands, target, op, out_format, way, out.numel());
  if (table.defined()) {
    const auto* results = table.const_data_ptr<uint8_t>();
    const CpuKernels& k = kernels(c10::kCPU, "arithmetic");
    at::parallel_for(0, out.numel(), at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
      const auto at = [&](size_t j) { return reinterpret_cast<uint8_t*>(data[j] + begin); };
      k.look_up_pair(results, at(1), at(2), at(0), end - begin);
    });
    return out;
  }
  CpuCall<N, Operator> call(operands, target, op, out_format, way, data[0]);
  at::parallel_for(0, out.numel(), at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
    std::array<char*, N + 1> here = data;
    for (size_t j = 0; j < tensors; ++j) here[j] += begin * strides[j];
    call.run(here.data(), strides.data(), end - begin);
  });
  call.finish();
  return out;
}

} // namespace at::formats::elementwise_loops
