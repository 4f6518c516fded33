# read_headers_seldom(<numerics> <operators> <objects> <bindings>): keeps a build of these targets
# short.
#
# PyTorch's headers, and their templates that each source instantiates, are most of the compile time
# of a source that includes a tensor. A source still includes all that it needs: a build with both
# options off, as in PyTorch's tree, finds missing includes. Two sources of one layer may not use
# one name for local things (in an unnamed namespace, or static): test/tools/test_layers.py.

option(TORCH_DTYPES_PRECOMPILED_HEADERS "Read PyTorch's headers once for all sources of a layer" ON)
option(TORCH_DTYPES_UNITY
  "Compile several sources of a layer as one: for a build that is made once, as wheels are" OFF)

set(_tensor_headers <ATen/Functions.h> <ATen/TensorIterator.h> <ATen/core/dispatch/Dispatcher.h>
  <torch/csrc/autograd/functions/utils.h> <torch/library.h>)
set(_python_headers ${_tensor_headers} <torch/csrc/autograd/python_variable.h>
  <torch/csrc/utils/pybind.h>)

function(read_headers_seldom numerics operators objects bindings)
  if(TORCH_DTYPES_PRECOMPILED_HEADERS)
    # Two sets: each object file that includes pybind11 carries 100 KB of it.
    target_precompile_headers(${numerics} PRIVATE ${_tensor_headers})
    target_precompile_headers(${operators} REUSE_FROM ${numerics})
    target_precompile_headers(${objects} PRIVATE ${_python_headers})
    target_precompile_headers(${bindings} REUSE_FROM ${objects})
  endif()
  if(TORCH_DTYPES_UNITY)
    set_target_properties(${ARGV} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  endif()
endfunction()
