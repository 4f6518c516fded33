# precompile_headers_of_pytorch(<numerics> <operators> <objects>): reads PyTorch's headers once for each of the layers' targets.
#
# They are most of what a source that includes a tensor costs a compiler. A source names all that it needs nevertheless: a build with
# -DTORCH_DTYPES_PRECOMPILED_HEADERS=OFF, as PyTorch's tree makes, finds what is missing.

option(TORCH_DTYPES_PRECOMPILED_HEADERS "Read PyTorch's headers once for all sources of a layer" ON)

set(_tensor_headers <ATen/EmptyTensor.h> <ATen/core/Tensor.h> <ATen/core/ivalue.h>)
set(_operator_headers ${_tensor_headers} <ATen/Functions.h> <ATen/TensorIterator.h> <ATen/core/dispatch/Dispatcher.h> <torch/library.h>)
set(_python_headers ${_operator_headers} <torch/csrc/autograd/python_variable.h> <torch/csrc/autograd/variable.h> <torch/csrc/utils/pybind.h>)

function(precompile_headers_of_pytorch numerics operators objects)
  if(TORCH_DTYPES_PRECOMPILED_HEADERS)
    target_precompile_headers(${numerics} PRIVATE ${_tensor_headers})
    target_precompile_headers(${operators} PRIVATE ${_operator_headers})
    target_precompile_headers(${objects} PRIVATE ${_python_headers})
  endif()
endfunction()
