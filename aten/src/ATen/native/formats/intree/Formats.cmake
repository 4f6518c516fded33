# Makes the number formats part of PyTorch's own build: caffe2/CMakeLists.txt includes this once its
# targets are there.
#
# Sources.cmake, which tools/intree writes beside this, lists the sources. They are C++20, which
# PyTorch 2.6 is not, so its precompiled headers are not theirs. A product and a sum must not fuse,
# and of PyTorch's options for floating point they take none. Their names are exported, for
# torch/csrc calls them. Kernels are compiled once per vector unit as PyTorch's own are
# (cmake/Codegen.cmake finds them).
include("${CMAKE_CURRENT_LIST_DIR}/Sources.cmake")

function(format_source_options)
  cmake_parse_arguments(_ "" "" "FILES;OPTIONS" ${ARGN})
  set(options -std=gnu++20 -ffp-contract=off -ftrapping-math -fmath-errno -fvisibility=default
    ${__OPTIONS})
  set_source_files_properties(${__FILES} PROPERTIES COMPILE_OPTIONS "${options}"
    SKIP_PRECOMPILE_HEADERS ON)
endfunction()

if(NOT USE_DISTRIBUTED)
  list(FILTER FORMAT_SOURCES EXCLUDE REGEX "Collective")
endif()
list(TRANSFORM FORMAT_SOURCES PREPEND "${Torch_SOURCE_DIR}/")
format_source_options(FILES ${FORMAT_SOURCES})
list(FILTER FORMAT_SOURCES EXCLUDE REGEX "/ATen/[^/]+$") # those the glob of aten/src/ATen has found
target_sources(torch_cpu PRIVATE ${FORMAT_SOURCES})

# libtorch is loaded after libtorch_cpu, in which operators register themselves in no order.
set(_load "${CMAKE_CURRENT_LIST_DIR}/Load.cpp")
format_source_options(FILES "${_load}")
target_sources(torch PRIVATE "${_load}")

set(_units)
set(_unit_options_AVX512 -mavx512cd -mf16c -mprefer-vector-width=512)
foreach(_unit IN ITEMS DEFAULT AVX2 AVX512)
  if(_unit STREQUAL "DEFAULT" OR CXX_${_unit}_FOUND)
    file(GLOB _kernels "${CMAKE_BINARY_DIR}/aten/src/ATen/native/formats/cpu/*.${_unit}.cpp")
    format_source_options(FILES ${_kernels} OPTIONS -fno-math-errno ${_unit_options_${_unit}})
    list(APPEND _units TORCH_DTYPES_HAVE_${_unit})
  endif()
endforeach()
set_source_files_properties("${Torch_SOURCE_DIR}/aten/src/ATen/native/formats/cpu/Kernels.cpp"
  PROPERTIES COMPILE_DEFINITIONS "${_units}")

# The code that torchgen writes only calls kernels. It takes a fifth of the time with -O1.
option(TORCH_DTYPES_QUICK "Compile the code that torchgen writes with -O1" ON)
function(generated_source_options target)
  get_target_property(_generated ${target} SOURCES)
  list(FILTER _generated INCLUDE REGEX
    "^${CMAKE_BINARY_DIR}/aten/src/ATen/(Register|Operators_|Functions|CompositeView)|/autograd/generated/")
  if(TORCH_DTYPES_QUICK)
    set_property(SOURCE ${_generated} APPEND PROPERTY COMPILE_OPTIONS -O1)
  endif()
endfunction()
generated_source_options(torch_cpu)
