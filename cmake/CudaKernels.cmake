# The GPU's kernels, compiled by nvcc for CUDA tensors, or for tests without a GPU by the host's
# compiler, which makes loops of their grids.
#
# TORCH_DTYPES_CUDA: AUTO builds them if PyTorch is a CUDA build and nvcc of its major version
# exists; ON insists; OFF leaves them out. OFF is the default until a GPU has run them.
# Architectures: TORCH_CUDA_ARCH_LIST of the environment, as for PyTorch's own extensions, else
# Turing to Blackwell and PTX for later ones. TORCH_DTYPES_GPU_ON_HOST and
# TORCH_DTYPES_GPU_SIMULATED are developers' options, see CONTRIBUTING.md. At most one of the three
# may be on.

set(TORCH_DTYPES_CUDA OFF CACHE STRING "CUDA kernels: AUTO, ON or OFF")
set_property(CACHE TORCH_DTYPES_CUDA PROPERTY STRINGS AUTO ON OFF)
option(TORCH_DTYPES_GPU_ON_HOST
  "Compile the GPU's kernels for the host, so that CPU tensors can go their way in tests" OFF)
option(TORCH_DTYPES_GPU_SIMULATED
  "Compile the GPU's kernels for the host, and a CUDA runtime without a GPU beside them (test/simulated_gpu/)"
  OFF)

# Returns CUDA's major version in PyTorch's version.py; empty for a CPU build.
function(find_torch_cuda result)
  file(STRINGS "${TORCH_DTYPES_TORCH_DIR}/version.py" _line REGEX "^cuda[:= ].*= *'[0-9.]+'")
  string(REGEX MATCH "'([0-9]+)\\." _ "${_line}")
  set(${result} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

# Converts the architectures in TORCH_CUDA_ARCH_LIST ("8.0 9.0a+PTX", with spaces, commas or
# semicolons) to CMake's form.
function(read_torch_arch_list text result)
  string(REPLACE " " ";" _list "${text}")
  string(REPLACE "," ";" _list "${_list}")
  set(_found)
  foreach(_arch IN LISTS _list)
    if(NOT _arch)
      continue()
    endif()
    if(NOT _arch MATCHES "^([0-9]+)\\.([0-9])([af]?)(\\+PTX)?$")
      message(FATAL_ERROR
        "expected numbers like 8.0 or 9.0+PTX in TORCH_CUDA_ARCH_LIST, but got ${_arch}")
    endif()
    set(_number "${CMAKE_MATCH_1}${CMAKE_MATCH_2}${CMAKE_MATCH_3}")
    list(APPEND _found ${_number}-real)
    if(CMAKE_MATCH_4)
      list(APPEND _found ${_number}-virtual)
    endif()
  endforeach()
  set(${result} "${_found}" PARENT_SCOPE)
endfunction()

# A macro, since a language may not be enabled within a function. Its returns end this file.
macro(add_cuda_kernels)
  find_torch_cuda(_torch_cuda)
  if(NOT _torch_cuda)
    if(TORCH_DTYPES_CUDA STREQUAL "ON")
      message(FATAL_ERROR "expected a CUDA build of PyTorch for TORCH_DTYPES_CUDA=ON, but got "
        "${TORCH_DTYPES_TORCH_VERSION}, a CPU build")
    endif()
    return()
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(_nvcc nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES
      bin)
    if(_nvcc)
      set(CMAKE_CUDA_COMPILER "${_nvcc}" CACHE FILEPATH "nvcc")
    endif()
  endif()
  set(_version)
  set(_compiler "${CMAKE_CUDA_COMPILER}")
  if(NOT _compiler AND DEFINED ENV{CUDACXX})
    set(_compiler "$ENV{CUDACXX}")
  endif()
  if(_compiler)
    execute_process(COMMAND "${_compiler}" --version OUTPUT_VARIABLE _text ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+)\\." _ "${_text}")
    set(_version "${CMAKE_MATCH_1}")
  endif()
  if(NOT _version STREQUAL _torch_cuda)
    set(_why
      "expected nvcc of CUDA ${_torch_cuda}, PyTorch's, for CUDA kernels, but got ${_version}${_compiler}")
    if(NOT _version)
      set(_why
        "expected nvcc of CUDA ${_torch_cuda}, PyTorch's, for CUDA kernels, but found none (CUDACXX or CUDA_HOME may name it)")
    endif()
    if(TORCH_DTYPES_CUDA STREQUAL "ON")
      message(FATAL_ERROR "${_why}")
    endif()
    message(STATUS "${_why}: built for the CPU alone")
    return()
  endif()

  if(DEFINED ENV{TORCH_CUDA_ARCH_LIST} AND NOT CMAKE_CUDA_ARCHITECTURES)
    read_torch_arch_list("$ENV{TORCH_CUDA_ARCH_LIST}" CMAKE_CUDA_ARCHITECTURES)
  elseif(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90-real)
    if(_torch_cuda GREATER_EQUAL 13)
      list(APPEND CMAKE_CUDA_ARCHITECTURES 100-real 120-real 120-virtual)
    else()
      list(APPEND CMAKE_CUDA_ARCHITECTURES 90-virtual)
    endif()
  endif()
  enable_language(CUDA)
  # Releases of CMake older than the compiler do not know its option for the standard.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    list(APPEND CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  endif()
  find_package(CUDAToolkit ${_torch_cuda} REQUIRED)
  message(STATUS "CUDA kernels by ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION} for "
    "${CMAKE_CUDA_ARCHITECTURES}")

  add_library(torch_dtypes_cuda OBJECT ${CUDA_KERNEL_SOURCES})
  target_include_directories(torch_dtypes_cuda PRIVATE "${PROJECT_SOURCE_DIR}"
    "${PROJECT_SOURCE_DIR}/aten/src")
  # -fmad=false is nvcc's -ffp-contract=off. --expt-relaxed-constexpr: the device calls the formats'
  # constexpr functions too.
  target_compile_options(torch_dtypes_cuda PRIVATE -fmad=false --expt-relaxed-constexpr --threads=0
    -Xcompiler=-Wall,-Wextra
    $<$<BOOL:${TORCH_DTYPES_WERROR}>:-Werror=all-warnings>)
  # The runtime is linked below, shared.
  set_target_properties(torch_dtypes_cuda _C PROPERTIES CUDA_RUNTIME_LIBRARY None)
  set_target_properties(torch_dtypes_cuda PROPERTIES CUDA_STANDARD 20 CUDA_ARCHITECTURES
    "${CMAKE_CUDA_ARCHITECTURES}" CUDA_VISIBILITY_PRESET hidden
    POSITION_INDEPENDENT_CODE ON)

  add_cuda_binding("${CUDAToolkit_INCLUDE_DIRS}" ${CUDA_BINDING_SOURCES})
  # PyTorch's own runtime, already loaded, is found by its name: no path of this machine's toolkit
  # stays in the library.
  target_sources(_C PRIVATE $<TARGET_OBJECTS:torch_dtypes_cuda>)
  target_link_libraries(_C PRIVATE CUDA::cudart)
endmacro()

# Adds the sources that include PyTorch's CUDA.
function(add_cuda_binding include_directories)
  add_library(torch_dtypes_cuda_binding OBJECT ${ARGN})
  torch_dtypes_compile_options(torch_dtypes_cuda_binding)
  target_link_libraries(torch_dtypes_cuda_binding PRIVATE torch_dtypes::torch)
  target_include_directories(torch_dtypes_cuda_binding SYSTEM PRIVATE ${include_directories})
  target_sources(_C PRIVATE $<TARGET_OBJECTS:torch_dtypes_cuda_binding>)
  target_link_libraries(_C PRIVATE "${TORCH_DTYPES_TORCH_DIR}/lib/libc10_cuda.so"
    "${TORCH_DTYPES_TORCH_DIR}/lib/libtorch_cuda.so")
endfunction()

# Adds the kernels, compiled by the host's compiler.
function(add_host_kernels target)
  add_library(${target} OBJECT ${CUDA_KERNEL_SOURCES})
  set_source_files_properties(${CUDA_KERNEL_SOURCES} PROPERTIES LANGUAGE CXX)
  torch_dtypes_compile_options(${target})
  target_sources(_C PRIVATE $<TARGET_OBJECTS:${target}>)
endfunction()

if(TORCH_DTYPES_GPU_ON_HOST)
  add_host_kernels(torch_dtypes_gpu_on_host)
  # Only this file sees the option: a build differs from an ordinary one by it and by the kernels.
  set_property(SOURCE aten/src/ATen/native/formats/gpu/GpuKernels.cpp APPEND PROPERTY
    COMPILE_DEFINITIONS TORCH_DTYPES_GPU_ON_HOST)
elseif(TORCH_DTYPES_GPU_SIMULATED)
  find_package(CUDAToolkit REQUIRED) # its headers
  add_host_kernels(torch_dtypes_gpu_simulated)
  target_compile_definitions(torch_dtypes_gpu_simulated PRIVATE
    "TORCH_DTYPES_SIMULATED_GPU=<test/simulated_gpu/Launch.h>")
  target_include_directories(torch_dtypes_gpu_simulated SYSTEM PRIVATE
    "${CUDAToolkit_INCLUDE_DIRS}")
  add_cuda_binding("${CUDAToolkit_INCLUDE_DIRS}" ${CUDA_BINDING_SOURCES} ${STOCK_ON_HOST_SOURCES})

  # This library is preloaded: before PyTorch's libraries find the runtime, and under the driver's
  # name.
  add_library(simulated_gpu SHARED ${SIMULATED_GPU_SOURCES})
  target_compile_features(simulated_gpu PRIVATE cxx_std_20)
  target_include_directories(simulated_gpu SYSTEM PRIVATE "${CUDAToolkit_INCLUDE_DIRS}"
    "${TORCH_DTYPES_TORCH_DIR}/../nvidia/nccl/include")
  target_link_options(simulated_gpu PRIVATE -Wl,-soname,libcuda.so.1)
  set_target_properties(simulated_gpu PROPERTIES NO_SONAME ON CXX_VISIBILITY_PRESET default)
elseif(NOT TORCH_DTYPES_CUDA STREQUAL "OFF")
  add_cuda_kernels()
endif()
