// The kernel that every operator has from the start: decode, run the stock kernel, encode.
#pragma once

namespace at::formats {

// Registers it for every aten operator that takes a tensor, makes no view and has neither a
// CompositeImplicitAutograd kernel nor one of this package. Each operator gets its own
// registration. With the key's fallback alone, CompositeExplicitAutograd kernels would run on
// format tensors, allocate from self.options() and return the container's dtype.
//
// Composite operators whose stock code dispatches on the container's type get it too. Their
// derivative is the stock operator's own, on decoded values. Returns the number of operators
// registered.
int register_boxed_kernels();

} // namespace at::formats
