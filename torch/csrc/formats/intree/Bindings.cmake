# The extension module torch_dtypes._C inside PyTorch's own tree, beside its package:
# torch/CMakeLists.txt includes this once torch_python is there.
#
# Sources.cmake, which tools/intree writes beside this, lists the sources. They are C++20, so
# PyTorch's precompiled header is not theirs.
include("${CMAKE_CURRENT_LIST_DIR}/Sources.cmake")
list(TRANSFORM BINDING_SOURCES PREPEND "${Torch_SOURCE_DIR}/")

set(_load "${CMAKE_CURRENT_LIST_DIR}/Load.cpp")
set_source_files_properties("${_load}" PROPERTIES COMPILE_OPTIONS -std=gnu++20
  SKIP_PRECOMPILE_HEADERS ON)
target_sources(torch_python PRIVATE "${_load}")
generated_source_options(torch_python)

add_library(torch_dtypes_python MODULE ${BINDING_SOURCES})
target_compile_options(torch_dtypes_python PRIVATE -ffp-contract=off -ftrapping-math -fmath-errno
  -fno-strict-aliasing)
target_compile_definitions(torch_dtypes_python PRIVATE TORCH_EXTENSION_NAME=_C
  TORCH_API_INCLUDE_EXTENSION_H)
target_include_directories(torch_dtypes_python PRIVATE ${TORCH_PYTHON_INCLUDE_DIRECTORIES})
target_link_libraries(torch_dtypes_python PRIVATE torch_python ${TORCH_LIB} c10 Python::Module
  pybind::pybind11)
set_target_properties(torch_dtypes_python PROPERTIES
  CXX_STANDARD 20 CXX_VISIBILITY_PRESET hidden
  PREFIX "" OUTPUT_NAME _C SUFFIX ".so" LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/torch_dtypes"
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../torch/lib")

# torch_dtypes/_torch_version.py compares this with the running PyTorch.
file(STRINGS "${Torch_SOURCE_DIR}/version.txt" _version LIMIT_COUNT 1)
file(WRITE "${CMAKE_BINARY_DIR}/torch_dtypes/_build_info.py" "\"\"\"How this copy of torch_dtypes was built. Written by CMake.\"\"\"

TORCH_VERSION = \"${_version}\"
CXX11_ABI = ${GLIBCXX_USE_CXX11_ABI}
")
