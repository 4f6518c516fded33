// bincount: stock code adds weights of other dtypes than float32 in float64, and returns float64.
#include <ATen/FormatTensor.h>

#include <ATen/ops/bincount_ops.h>
#include <torch/library.h>

namespace at::formats {
namespace {

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights,
                    int64_t minlength) {
  TORCH_CHECK(!is_format_tensor(self),
              "bincount: expected integers to count, but got a tensor of torch.",
              entry_of(self).name, ". Convert it with .long().");
  return at::_ops::bincount::call(self, decoded(*weights, c10::ScalarType::Double), minlength);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("bincount", TORCH_FN(bincount));
}

} // namespace at::formats
