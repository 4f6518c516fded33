# Options, and the flags of every target of this project.

option(TORCH_DTYPES_WERROR "Treat the compiler's warnings as errors" OFF)
option(TORCH_DTYPES_BUILD_TESTS "Build the C++ tests that link no PyTorch" OFF)
set(TORCH_DTYPES_SANITIZE "" CACHE STRING
  "Sanitizers, as -fsanitize= takes them: address,undefined")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
string(TOUPPER "${CMAKE_BUILD_TYPE}" TORCH_DTYPES_BUILD_TYPE_UPPER)

# PyTorch 2.13's headers need C++20.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TORCH_DTYPES_CCACHE ccache)
  mark_as_advanced(TORCH_DTYPES_CCACHE)
  if(TORCH_DTYPES_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${TORCH_DTYPES_CCACHE}")
  endif()
endif()

# Include roots, warnings, sanitizers and floating-point rules of one target.
function(torch_dtypes_compile_options target)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}"
    "${PROJECT_SOURCE_DIR}/aten/src")
  # Headers that PyTorch's include and wheels lack. They come before any on a machine, so that
  # builds are equal everywhere.
  target_include_directories(${target} BEFORE PRIVATE "${PROJECT_SOURCE_DIR}/third_party/include")
  # -ffp-contract=off: a product and a sum must not fuse unasked, or results differ in the last bit
  # between processors.
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${TORCH_DTYPES_WERROR}>:-Werror>
    -ffp-contract=off)
  # g++ 12 takes SmallVector's elements, and a whole-array copy of sums, for unset values: a
  # warning, not an error.
  target_compile_options(${target} PRIVATE
    $<$<AND:$<BOOL:${TORCH_DTYPES_WERROR}>,$<CXX_COMPILER_ID:GNU>>:-Wno-error=maybe-uninitialized>)
  if(TORCH_DTYPES_SANITIZE)
    # vptr checks need type information that PyTorch's libraries do not export.
    target_compile_options(${target} PRIVATE -fsanitize=${TORCH_DTYPES_SANITIZE} -fno-sanitize=vptr
      -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${TORCH_DTYPES_SANITIZE})
  endif()
endfunction()
