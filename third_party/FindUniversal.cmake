# universal::universal: the headers of the Universal number library (MIT licence), for a test beside
# its posits and quire.
#
# UNIVERSAL_INCLUDE_DIR is the folder that has universal/number/: include/sw of a clone.

find_path(UNIVERSAL_INCLUDE_DIR universal/number/posit/posit.hpp PATH_SUFFIXES sw include/sw DOC
  "The Universal library's headers")
mark_as_advanced(UNIVERSAL_INCLUDE_DIR)
if(UNIVERSAL_INCLUDE_DIR AND NOT EXISTS "${UNIVERSAL_INCLUDE_DIR}/universal/number/posit/posit.hpp")
  message(FATAL_ERROR "expected universal/number/posit/posit.hpp in UNIVERSAL_INCLUDE_DIR, but "
    "${UNIVERSAL_INCLUDE_DIR} has none; "
    "give <clone of universal>/include/sw")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Universal REQUIRED_VARS UNIVERSAL_INCLUDE_DIR)

if(Universal_FOUND AND NOT TARGET universal::universal)
  add_library(universal::universal INTERFACE IMPORTED)
  set_target_properties(universal::universal PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
    "${UNIVERSAL_INCLUDE_DIR}")
endif()
