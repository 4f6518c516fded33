// Casts that an autocast with a dtype of ours makes of weights, kept for its block. PyTorch's own
// cache keeps one cast of a tensor, whatever its dtype, so blocks of several dtypes within one
// another would get each other's casts.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace at::formats {

// The device type by which autocast takes a tensor.
c10::DeviceType autocast_device(c10::Device device);

// Whether the thread is in an autocast block, of any dtype, enabled or not.
bool in_autocast_block();
// Whether the thread is in an outermost autocast block within which one with a dtype of ours has
// begun.
bool autocast_mixes();
// Whether it was within one since the casts were cleared last, as the outermost block does when it
// ends.
bool autocast_has_mixed();

// What torch.set_autocast_cache_enabled, is_autocast_cache_enabled and clear_autocast_cache mean
// where an autocast dtype is ours. While a block with such a dtype is on, PyTorch's cache is off
// and ours is on.
void set_autocast_cache(bool enabled);
bool autocast_cache();
void clear_autocast_casts();

// The cast of a weight, a float32 leaf with gradients, that a block keeps for this dtype and
// rounding; else what `cast` gives.
at::Tensor kept_cast(const at::Tensor& self, c10::ScalarType dtype,
                     c10::function_ref<at::Tensor()> cast);

} // namespace at::formats
