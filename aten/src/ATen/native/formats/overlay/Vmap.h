// vmap over tensors of ours, where the stock batching rules or the composite operators beneath them go by the container's dtype.
#pragma once
#include <set>
#include <string>

namespace at::formats {

// by_casts: the composite operators that misread the container without vmap.
void register_vmap_kernels(const std::set<std::string>& by_casts);

} // namespace at::formats
