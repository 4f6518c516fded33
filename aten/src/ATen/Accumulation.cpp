#include <ATen/Accumulation.h>

#include <ATen/OverrideUses.h>

#include <array>
#include <atomic>
#include <utility>

namespace at::formats {
namespace {

thread_local std::optional<Accumulation> override_policy;

// Old policies are never freed: a kernel may be reading one. They are few and small.
std::array<std::atomic<const Accumulation*>, c10::formats::kMaxFormats> defaults{};

} // namespace

std::optional<Accumulation> accumulation_override() {
  return override_policy;
}

std::optional<Accumulation> set_accumulation_override(const std::optional<Accumulation>& policy) {
  return std::exchange(override_policy, policy);
}

void set_accumulation_default(const FormatEntry& entry, const Accumulation& policy) {
  c10::formats::keep_number(entry);
  defaults[c10::formats::number_of_format(entry)].store(new Accumulation(policy),
                                                        std::memory_order_release);
}

Accumulation accumulation_of(const FormatEntry& entry) {
  if (override_policy) {
    ++override_uses().accumulation;
    return *override_policy;
  }
  const int id = entry.id; // a dtype with a policy keeps its number
  const Accumulation* own = id >= 0 ? defaults[id].load(std::memory_order_acquire) : nullptr;
  return own ? *own : Accumulation{};
}

} // namespace at::formats
