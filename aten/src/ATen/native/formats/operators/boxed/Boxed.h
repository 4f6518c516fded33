// The kernel that every operator has from the first day: decode, run the stock kernel, encode.
#pragma once

namespace at::formats {

// Registers it for every aten operator that takes a tensor, makes no view, has no
// CompositeImplicitAutograd kernel and no kernel of ours. It is registered per operator, not only
// as the key's fallback: otherwise CompositeExplicitAutograd kernels would run on our tensors,
// allocate from self.options() and return the container's dtype.
//
// Composite operators whose stock code dispatches on the container's type get it too, with a
// derivative that runs the stock operator's own on the decoded values. Returns how many operators
// got it.
int register_boxed_kernels();

} // namespace at::formats
