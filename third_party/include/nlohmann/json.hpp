// PyTorch's wheels have headers that include this one of the nlohmann/json library (ATen/functorch/Interpreter.h, by which tensors of torch.func and the
// level of a vmap are seen), and do not have it. This declares what they name, and defines none of it: whoever called it would find nothing to link.
#pragma once
#include <string>

namespace nlohmann {

struct json {
  json();
  template <typename T>
  explicit json(const T& of);
  static json parse(const std::string& text);
  std::string dump() const;
  template <typename T>
  T get() const;
};

} // namespace nlohmann
