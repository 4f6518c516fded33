#include <ATen/MixedOperands.h>

#include <atomic>
#include <utility>

namespace at::formats {

static thread_local std::optional<MixedOperands> override_mixed;
static std::atomic<MixedOperands> default_mode{MixedOperands::Raise};

MixedOperands mixed_operands() {
  return override_mixed ? *override_mixed : default_mode.load(std::memory_order_relaxed);
}

std::optional<MixedOperands> mixed_operands_override() {
  return override_mixed;
}

std::optional<MixedOperands> set_mixed_operands_override(std::optional<MixedOperands> mode) {
  return std::exchange(override_mixed, mode);
}

void set_mixed_operands_default(MixedOperands mode) {
  default_mode.store(mode, std::memory_order_relaxed);
}

} // namespace at::formats
