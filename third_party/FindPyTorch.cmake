# The imported target torch_dtypes::torch: headers and libraries of the PyTorch that is built
# against.
#
# TORCH_DTYPES_TORCH_DIR, _TORCH_VERSION and _CXX11_ABI come from tools/build_backend.py: as
# definitions when it drives the build, and by asking it when CMake is run by hand.

if(DEFINED SKBUILD)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter ${SKBUILD_SABI_COMPONENT}
    Development.Module)
else()
  set(Python_FIND_VIRTUALENV FIRST)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
endif()

if(NOT TORCH_DTYPES_TORCH_VERSION)
  set(_find_torch "${CMAKE_COMMAND}" -E env)
  if(TORCH_DTYPES_TORCH_DIR)
    list(APPEND _find_torch "TORCH_DTYPES_TORCH_DIR=${TORCH_DTYPES_TORCH_DIR}")
  endif()
  execute_process(
    COMMAND ${_find_torch} "${Python_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/build_backend.py"
    OUTPUT_VARIABLE _torch ERROR_VARIABLE _error RESULT_VARIABLE _status
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT _status EQUAL 0)
    message(FATAL_ERROR "${_error}")
  endif()
  list(GET _torch 0 TORCH_DTYPES_TORCH_DIR)
  list(GET _torch 1 TORCH_DTYPES_TORCH_VERSION)
  list(GET _torch 2 TORCH_DTYPES_CXX11_ABI)
endif()
message(STATUS "PyTorch ${TORCH_DTYPES_TORCH_VERSION} in ${TORCH_DTYPES_TORCH_DIR}")

add_library(torch_dtypes::torch INTERFACE IMPORTED)
set_target_properties(torch_dtypes::torch PROPERTIES
  # Of an imported target, these are system headers: our warnings do not apply to them, and our own
  # folders come first.
  INTERFACE_INCLUDE_DIRECTORIES
  "${TORCH_DTYPES_TORCH_DIR}/include;${TORCH_DTYPES_TORCH_DIR}/include/torch/csrc/api/include"
  INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=${TORCH_DTYPES_CXX11_ABI}")
foreach(_library IN ITEMS c10 torch_cpu torch torch_python)
  set(_file
    "${TORCH_DTYPES_TORCH_DIR}/lib/${CMAKE_SHARED_LIBRARY_PREFIX}${_library}${CMAKE_SHARED_LIBRARY_SUFFIX}")
  if(NOT EXISTS "${_file}")
    message(FATAL_ERROR
      "expected PyTorch's library ${_file}, but got no such file; reinstall torch")
  endif()
  set_property(TARGET torch_dtypes::torch APPEND PROPERTY INTERFACE_LINK_LIBRARIES "${_file}")
endforeach()

# A PyTorch may be built without torch.distributed: then its libraries lack what the headers
# declare.
set(TORCH_DTYPES_TORCH_DISTRIBUTED OFF)
set(_targets "${TORCH_DTYPES_TORCH_DIR}/share/cmake/Caffe2/Caffe2Targets.cmake")
if(EXISTS "${_targets}")
  file(STRINGS "${_targets}" _distributed REGEX "USE_DISTRIBUTED")
  if(_distributed)
    set(TORCH_DTYPES_TORCH_DISTRIBUTED ON)
  endif()
endif()

# at::parallel_for is a header template and runs serially where it is compiled without OpenMP.
# Compiled with it, but not linked: the OpenMP runtime must be the one that PyTorch has loaded (some
# wheels carry their own libgomp), not a second.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set_property(TARGET torch_dtypes::torch PROPERTY INTERFACE_COMPILE_OPTIONS -fopenmp)
else()
  message(STATUS
    "built without OpenMP: only GNU's runtime matches PyTorch's, so at::parallel_for runs on one "
    "thread")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PyTorch REQUIRED_VARS TORCH_DTYPES_TORCH_DIR VERSION_VAR
  TORCH_DTYPES_TORCH_VERSION)
