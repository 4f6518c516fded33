// The extension module torch_dtypes._C inside PyTorch's own tree: the common bindings. There are no
// hooks, so nothing else is needed.
#include <torch/csrc/formats/bindings/AccumulationBindings.h>
#include <torch/csrc/formats/bindings/Bindings.h>
#include <torch/csrc/formats/bindings/Observing.h>

PYBIND11_MODULE(_C, m) {
  using namespace torch::formats;
  m.doc() =
      "The native part of torch_dtypes, inside PyTorch's own tree. Private: use torch_dtypes.";
  bind_formats(m);
  bind_accumulation(m);
  bind_numerics(m);
  bind_observing(m);
}
