#include <ATen/FormatLibrary.h>

namespace at::formats {

// Libraries live as long as the process: unregistering at exit would race with other libraries'
// destructors.
static torch::Library* make_library(c10::DispatchKey key) {
  return new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
}

std::string dispatch_name(const c10::OperatorName& name) {
  const std::string full = c10::toString(name);
  return full.substr(full.find("::") + 2);
}

void register_below_autograd(const c10::OperatorName& name, const MakeKernel& kernel) {
  static auto* library = make_library(kFormatKey);
  library->impl(dispatch_name(name).c_str(), kernel());
}

void register_autograd(const c10::OperatorName& name, const MakeKernel& kernel) {
  static auto* eager = make_library(kFormatAutogradKey);
  static auto* wrapped = make_library(kWrappedAutogradKey);
  for (torch::Library* library : {eager, wrapped})
    library->impl(dispatch_name(name).c_str(), kernel());
}

} // namespace at::formats
