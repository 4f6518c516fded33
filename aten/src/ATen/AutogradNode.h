// Nodes of autograd's graph, for operators with a derivative of their own.
#pragma once
#include <ATen/Releases.h>
#include <torch/csrc/autograd/function.h>

#include <memory>

namespace at::formats {

template <typename T, typename... Arguments>
auto make_node(Arguments... arguments) {
  if constexpr (kNodesCountThemselves) {
    return c10::make_intrusive<T>(arguments...);
  } else {
    // Found by the argument's namespace.
    return std::shared_ptr<T>(new T(arguments...), [](T* node) { deleteNode(node); });
  }
}

} // namespace at::formats
