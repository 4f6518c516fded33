#include <ATen/native/formats/operators/casts/AutocastCasts.h>

#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <array>
#include <map>
#include <tuple>

namespace at::formats {
namespace {

constexpr std::array kDevices{c10::DeviceType::CPU, c10::DeviceType::CUDA};
constexpr c10::DispatchKeySet kNotPlain({c10::DispatchKey::Python,
                                         c10::DispatchKey::FuncTorchBatched,
                                         c10::DispatchKey::FuncTorchGradWrapper,
                                         c10::DispatchKey::Functionalize});

struct Cast {
  // Weak: it keeps the address from being used by another tensor.
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> source;
  int64_t version;
  at::Tensor result;
};
// The source, the format, and the rounding mode of the cast.
using Key = std::tuple<const c10::TensorImpl*, const FormatEntry*, c10::formats::Rounding>;

// Per thread, as PyTorch's autocast settings are.
struct State {
  bool wanted{true};                      // the user's setting
  std::array<bool, kDevices.size()> on{}; // set in an enabled block with a format dtype and a cache
  bool mixes{false};
  std::map<Key, Cast> casts;
};
thread_local State state;

bool casts_to_format(c10::DeviceType device) {
  return at::autocast::is_autocast_enabled(device) &&
      c10::formats::is_format_type(at::autocast::get_autocast_dtype(device));
}

bool is_weight(const at::Tensor& t) {
  return t.scalar_type() == c10::ScalarType::Float && t.requires_grad() && t.is_leaf() &&
      !t.is_view() && !t.is_inference() && !t.key_set().has_any(kNotPlain) &&
      !c10::impl::TorchDispatchModeTLS::any_modes_set();
}

} // namespace

c10::DeviceType autocast_device(c10::Device device) {
  return device.is_cuda() ? at::kCUDA : at::kCPU;
}

bool in_autocast_block() {
  const bool within = at::autocast::increment_nesting() > 1;
  at::autocast::decrement_nesting();
  return within;
}

bool autocast_mixes() {
  return state.mixes && in_autocast_block();
}

bool autocast_has_mixed() {
  return state.mixes;
}

void set_autocast_cache(bool enabled) {
  state.wanted = enabled;
  bool any = false;
  for (size_t i = 0; i < kDevices.size(); ++i) {
    const bool ours = casts_to_format(kDevices[i]);
    state.on[i] = enabled && ours;
    any |= ours;
  }
  state.mixes |= any;
  at::autocast::set_autocast_cache_enabled(enabled && !any);
}

bool autocast_cache() {
  return state.wanted;
}

void clear_autocast_casts() {
  state.casts.clear();
  state.mixes = autocast_mixes();
}

at::Tensor kept_cast(const at::Tensor& self, c10::ScalarType dtype,
                     c10::function_ref<at::Tensor()> cast) {
  const bool on = state.on[autocast_device(self.device()) == kDevices[0] ? 0 : 1];
  if (!on || !is_weight(self)) return cast();
  const FormatEntry& entry = c10::formats::format_entry(dtype);
  const Key key{self.unsafeGetTensorImpl(), &entry, rounding_format(entry).rounding};
  const auto found = state.casts.find(key);
  // A cast made without gradients passes none to the weight. A cast from before an optimizer's step
  // has the old weight.
  const bool serves = found != state.casts.end() && found->second.version == self._version() &&
      (found->second.result.requires_grad() || !at::GradMode::is_enabled());
  if (serves) return found->second.result;
  const at::Tensor result = cast();
  state.casts.insert_or_assign(
      key, Cast{decltype(Cast::source)(self.getIntrusivePtr()), self._version(), result});
  return result;
}

} // namespace at::formats
