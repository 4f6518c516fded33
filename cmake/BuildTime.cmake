# read_headers_seldom(<numerics> <operators> <objects> <bindings>): what makes a build of these
# targets short.
#
# PyTorch's headers, and the templates in them that each source instantiates anew, are most of what
# a source that includes a tensor costs a compiler. A source names all that it needs nevertheless: a
# build with both options off, as PyTorch's tree makes, finds what is missing. Sources of one layer
# give no two things of their own (in an unnamed namespace, static) the same name:
# test/tools/test_layers.py.

option(TORCH_DTYPES_PRECOMPILED_HEADERS "Read PyTorch's headers once for all sources of a layer" ON)
option(TORCH_DTYPES_UNITY
  "Compile several sources of a layer as one: for a build that is made once, as wheels are" OFF)

set(_tensor_headers <ATen/Functions.h> <ATen/TensorIterator.h> <ATen/core/dispatch/Dispatcher.h>
  <torch/csrc/autograd/functions/utils.h> <torch/library.h>)
set(_python_headers ${_tensor_headers} <torch/csrc/autograd/python_variable.h>
  <torch/csrc/utils/pybind.h>)

function(read_headers_seldom numerics operators objects bindings)
  if(TORCH_DTYPES_PRECOMPILED_HEADERS)
    # Two sets: each object file that has read pybind11 carries 100 KB of it.
    target_precompile_headers(${numerics} PRIVATE ${_tensor_headers})
    target_precompile_headers(${operators} REUSE_FROM ${numerics})
    target_precompile_headers(${objects} PRIVATE ${_python_headers})
    target_precompile_headers(${bindings} REUSE_FROM ${objects})
  endif()
  if(TORCH_DTYPES_UNITY)
    set_target_properties(${ARGV} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  endif()
endfunction()
