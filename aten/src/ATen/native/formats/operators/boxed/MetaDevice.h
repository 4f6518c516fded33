// Tensors of ours on the device meta, beside stock ones there.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>

namespace at::formats {

// The backend Meta outranks PrivateUse2: an operator that also sees a stock tensor on meta would be
// the stock kernel's, to which ours look like tensors of their container. So ours carry a key above
// autograd there, which nothing else uses, and whose kernel takes Meta out of what is left to be
// done.
inline constexpr c10::DispatchKey kOnMetaKey = c10::DispatchKey::DeferredInit;

inline c10::DispatchKeySet meta_keys(c10::Device device) {
  return device.is_meta() ? c10::DispatchKeySet(kOnMetaKey) : c10::DispatchKeySet();
}

} // namespace at::formats
