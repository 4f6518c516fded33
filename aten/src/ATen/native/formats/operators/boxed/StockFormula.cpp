#include <ATen/native/formats/operators/boxed/StockFormula.h>

#include <ATen/Accumulation.h>
#include <ATen/FewRandomBits.h>
#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>
#include <ATen/Observation.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>

namespace at::formats {
namespace {

int64_t (*python_depth)() = nullptr;

// The place where the innermost backward pass began. If C++ began it, no guard set this; Python's
// threads begin at depth 1.
thread_local PlaceInPython backward_began{1, 0};
// The place where the innermost running composite operator began.
thread_local std::optional<PlaceInPython> composite_began;

int64_t modes() {
  return c10::impl::TorchDispatchModeTLS::stack_len();
}

PlaceInPython here(const PlaceInPython& unknown) {
  return {python_depth ? python_depth() : unknown.depth, modes()};
}

// Whether no Python code but handlers of modes has been entered since.
bool calls_us(const PlaceInPython& began) {
  const int64_t entered = python_depth ? python_depth() - began.depth : 0;
  return entered <= std::max<int64_t>(began.modes - modes(), 0);
}

// Whether this thread has state that other threads lack. Rounding of float32 (chop, quantize_)
// depends on it without any format tensor.
bool has_override() {
  return rounding_override() || few_bits_override().count != 0 || accumulation_override() ||
      has_word_source() || (observing() && observed_thread().observer);
}

} // namespace

void set_python_depth(int64_t (*depth)()) {
  python_depth = depth;
}

BackwardGuard::BackwardGuard()
    : before_(backward_began),
      alone_(has_gpu_kernels() && (any_format_tensor() || has_override()) &&
             c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
  backward_began = here(backward_began);
  if (alone_) c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

BackwardGuard::~BackwardGuard() {
  if (alone_) c10::AutogradState::get_tls_state().set_multithreading_enabled(true);
  backward_began = before_;
}

CompositeGuard::CompositeGuard() : before_(composite_began) {
  composite_began = here({1, 0});
}

CompositeGuard::~CompositeGuard() {
  composite_began = before_;
}

// The engine is C++, and all user code in it is Python: a hook of a tensor or node, a saved
// tensor's unpack hook, the backward of an autograd.Function. So a node's own formula runs at the
// depth at which backward began. A dispatch mode's handler is Python too: it runs between the
// formula and this call, and is then off the stack of modes.
bool in_stock_formula() {
  return torch::autograd::get_current_node() && calls_us(backward_began);
}

bool dtype_is_stock_codes() {
  return in_stock_formula() || (composite_began && calls_us(*composite_began));
}

} // namespace at::formats
