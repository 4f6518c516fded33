#pragma once
#include <torch/library.h>

namespace at::formats {

// front: for the key at which torch.func first sees a call; rules: for that of vmap's batching
// rules.
void register_batched_sums(torch::Library& front, torch::Library& rules);

} // namespace at::formats
