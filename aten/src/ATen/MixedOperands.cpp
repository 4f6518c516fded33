#include <ATen/MixedOperands.h>

#include <atomic>
#include <utility>

namespace at::formats {

static thread_local std::optional<MixedOperands> override_mode;
static std::atomic<MixedOperands> default_mode{MixedOperands::Raise};

MixedOperands mixed_operands() {
  return override_mode ? *override_mode : default_mode.load(std::memory_order_relaxed);
}

std::optional<MixedOperands> mixed_operands_override() {
  return override_mode;
}

std::optional<MixedOperands> set_mixed_operands_override(std::optional<MixedOperands> mode) {
  return std::exchange(override_mode, mode);
}

void set_mixed_operands_default(MixedOperands mode) {
  default_mode.store(mode, std::memory_order_relaxed);
}

} // namespace at::formats
