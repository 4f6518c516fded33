#pragma once
#include <torch/library.h>

namespace at::formats {

// front: at the key where torch.func first sees a call. rules: at the key of vmap's batching rules.
void register_batched_sums(torch::Library& front, torch::Library& rules);

} // namespace at::formats
