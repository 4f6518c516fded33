// Format tensors on the device meta, together with stock tensors there.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>

namespace at::formats {

// The backend Meta outranks PrivateUse2. With a stock meta tensor among the operands, the stock
// kernel would run and take format tensors for tensors of their container. So format tensors on
// meta also carry DeferredInit, a key above autograd that nothing else uses. Its kernel removes
// Meta from the key set and redispatches.
inline constexpr c10::DispatchKey kOnMetaKey = c10::DispatchKey::DeferredInit;

inline c10::DispatchKeySet meta_keys(c10::Device device) {
  return device.is_meta() ? c10::DispatchKeySet(kOnMetaKey) : c10::DispatchKeySet();
}

} // namespace at::formats
