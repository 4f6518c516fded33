// Differences between the supported releases of PyTorch, for C++. (For Python:
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
// Autograd's nodes count their references; in earlier releases std::shared_ptr does.
constexpr bool kNodesCountThemselves = TORCH_DTYPES_SINCE(2, 13);
// native_group_norm's formula makes zero gradients for undefined ones; earlier ones leave them
// undefined.
constexpr bool kNormalisationMakesZeros = TORCH_DTYPES_SINCE(2, 14);

} // namespace at::formats
