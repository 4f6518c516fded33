// Makes nodes of autograd's graph, for operators whose derivative is written in this package.
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
    // Argument-dependent lookup finds deleteNode().
    return std::shared_ptr<T>(new T(arguments...), [](T* node) { deleteNode(node); });
  }
}

} // namespace at::formats
