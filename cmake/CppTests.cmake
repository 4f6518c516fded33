# add_torch_dtypes_cpp_test(<name> <file>...): a test program of the number layer, without PyTorch.
# It is built with -DTORCH_DTYPES_BUILD_TESTS=ON and run by ctest; exit status 0 is success.

function(add_torch_dtypes_cpp_test name)
  if(NOT TORCH_DTYPES_BUILD_TESTS)
    return()
  endif()
  add_executable(${name} ${ARGN})
  torch_dtypes_compile_options(${name})
  add_test(NAME ${name} COMMAND ${name})
endfunction()
