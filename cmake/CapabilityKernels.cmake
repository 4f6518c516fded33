# add_capability_kernels(<file>...): compiles each kernel source once per vector unit and adds the
# objects to _C.
#
# A source sees CPU_CAPABILITY=DEFAULT, AVX2 or AVX512 (to name its namespace). It also sees
# CPU_CAPABILITY_DEFAULT, _AVX2 or _AVX512 defined (to test). The other sources see
# TORCH_DTYPES_HAVE_AVX2 and TORCH_DTYPES_HAVE_AVX512 if these are built. Processors other than
# x86-64 have DEFAULT only.
#
# Everything with external linkage belongs into the namespace CPU_CAPABILITY: the linker would keep
# one copy of three.

set(TORCH_DTYPES_VECTOR_UNITS all CACHE STRING
  "all, for a wheel that others install, or native: DEFAULT and the widest unit of this processor")
set_property(CACHE TORCH_DTYPES_VECTOR_UNITS PROPERTY STRINGS all native)

set(TORCH_DTYPES_CPU_CAPABILITIES DEFAULT)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  if(TORCH_DTYPES_VECTOR_UNITS STREQUAL "all")
    list(APPEND TORCH_DTYPES_CPU_CAPABILITIES AVX2 AVX512)
  elseif(TORCH_DTYPES_VECTOR_UNITS STREQUAL "native")
    include(CheckCXXSourceRuns)
    # The same tests as in cpu/Kernels.cpp.
    check_cxx_source_runs([[#define HAS(unit) __builtin_cpu_supports(unit)
      int main() { return !(HAS("avx512f") && HAS("avx512bw") && HAS("avx512vl") &&
                            HAS("avx512dq") && HAS("avx512cd") && HAS("fma")); }]]
      TORCH_DTYPES_RUNS_AVX512)
    check_cxx_source_runs([[int main() { return !(__builtin_cpu_supports("avx2") &&
                                                  __builtin_cpu_supports("fma")); }]]
      TORCH_DTYPES_RUNS_AVX2)
    if(TORCH_DTYPES_RUNS_AVX512)
      list(APPEND TORCH_DTYPES_CPU_CAPABILITIES AVX512)
    elseif(TORCH_DTYPES_RUNS_AVX2)
      list(APPEND TORCH_DTYPES_CPU_CAPABILITIES AVX2)
    endif()
  else()
    message(FATAL_ERROR "TORCH_DTYPES_VECTOR_UNITS: expected all or native, but got "
      "'${TORCH_DTYPES_VECTOR_UNITS}'")
  endif()
endif()

set(_capability_flags_DEFAULT)
set(_capability_flags_AVX2 -mavx2 -mfma -mf16c)
set(_capability_flags_AVX512
  -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd -mavx2 -mfma -mf16c
  -mprefer-vector-width=512)

function(add_capability_kernels)
  if(NOT ARGN)
    return()
  endif()
  # The order matters. The linker keeps the first copy of an inline function in several objects, and
  # every processor must be able to run it. So the object libraries of the layers come first (CMake
  # puts a target's own sources last), then the units in rising order.
  foreach(capability IN LISTS TORCH_DTYPES_CPU_CAPABILITIES)
    set(target torch_dtypes_kernels_${capability})
    if(NOT TARGET ${target})
      add_library(${target} OBJECT)
      torch_dtypes_compile_options(${target})
      target_compile_definitions(${target} PRIVATE CPU_CAPABILITY=${capability}
        CPU_CAPABILITY_${capability})
      target_compile_options(${target} PRIVATE
        $<$<CONFIG:Release,RelWithDebInfo>:-O3> -fno-math-errno ${_capability_flags_${capability}})
      target_sources(_C PRIVATE $<TARGET_OBJECTS:${target}>)
      if(NOT capability STREQUAL "DEFAULT")
        # Both layers: compilers reuse headers only where the same macros are defined.
        foreach(_objects IN ITEMS torch_dtypes_numerics torch_dtypes_operators)
          target_compile_definitions(${_objects} PRIVATE TORCH_DTYPES_HAVE_${capability})
        endforeach()
      endif()
    endif()
    target_sources(${target} PRIVATE ${ARGN})
  endforeach()
endfunction()
