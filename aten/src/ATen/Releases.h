// What the supported releases of PyTorch do not have in common, for C++. (For Python:
// torch/torch_dtypes/host/releases.py.)
#pragma once
#include <torch/version.h>

#define TORCH_DTYPES_SINCE(major, minor) \
  (TORCH_VERSION_MAJOR > major || (TORCH_VERSION_MAJOR == major && TORCH_VERSION_MINOR >= minor))

// How a process group exchanges the rows of one tensor.
#if TORCH_DTYPES_SINCE(2, 13)
#define TORCH_DTYPES_ALL_TO_ALL all_to_all_single
#else
#define TORCH_DTYPES_ALL_TO_ALL alltoall_base
#endif

namespace at::formats {

constexpr bool kDtypesHaveShortNames = TORCH_DTYPES_SINCE(2, 13);  // torch.dtype.abbr
// autograd's; before, std::shared_ptr does
constexpr bool kNodesCountThemselves = TORCH_DTYPES_SINCE(2, 13);
// native_group_norm's formula: gradients of what has none; before, undefined
constexpr bool kNormalisationMakesZeros = TORCH_DTYPES_SINCE(2, 14);

} // namespace at::formats
