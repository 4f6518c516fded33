// vmap over format tensors, for operators whose stock batching rules, or composite code below them,
// depend on the container's dtype.
#pragma once

namespace at::formats {

void register_vmap_kernels();

} // namespace at::formats
