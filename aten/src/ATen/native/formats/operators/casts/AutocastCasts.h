// Casts of weights by an autocast with a format dtype, kept for its block. PyTorch's own cache
// keeps one cast of a tensor for all dtypes, so nested blocks of several dtypes would get each
// other's casts.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace at::formats {

// The device type that autocast counts a device as.
c10::DeviceType autocast_device(c10::Device device);

// Whether the thread is in an autocast block, of any dtype, enabled or not.
bool in_autocast_block();
// Whether the thread is in an outermost autocast block in which a block with a format dtype has
// begun.
bool autocast_mixes();
// Whether it has been in one since the casts were last cleared. The outermost block clears them at
// its end.
bool autocast_has_mixed();

// torch.set_autocast_cache_enabled, is_autocast_cache_enabled and clear_autocast_cache for format
// dtypes. While a block with such a dtype is on, PyTorch's cache is off and this one is on.
void set_autocast_cache(bool enabled);
bool autocast_cache();
void clear_autocast_casts();

// Returns the cast of a weight (a float32 leaf with gradients) that a block keeps for this dtype
// and rounding mode. Without one, calls `cast`.
at::Tensor kept_cast(const at::Tensor& self, c10::ScalarType dtype,
                     c10::function_ref<at::Tensor()> cast);

} // namespace at::formats
