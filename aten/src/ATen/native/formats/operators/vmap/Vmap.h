// vmap over tensors of ours, where the stock batching rules or the composite operators beneath them
// go by the container's dtype.
#pragma once

namespace at::formats {

void register_vmap_kernels();

} // namespace at::formats
