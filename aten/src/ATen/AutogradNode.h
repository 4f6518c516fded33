// Nodes of autograd's graph, for operators with a derivative of their own.
#pragma once
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>

namespace at::formats {

// Nodes are counted by std::shared_ptr up to torch 2.12, and by themselves in 2.13.
template <typename T, typename... Arguments>
auto make_node(Arguments... arguments) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, T>) {
    return c10::make_intrusive<T>(arguments...);
  } else {
    return std::shared_ptr<T>(new T(arguments...), [](T* node) { deleteNode(node); }); // found by the argument's namespace
  }
}

} // namespace at::formats
