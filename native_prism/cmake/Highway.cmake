# Gives the target hwy::hwy: the installed Highway, else this one release, fetched and checked by its hash.

option(BOUNDSCOPE_PRISM_FETCH_HIGHWAY "Fetch Highway and link it statically even where it is installed" OFF)

if(NOT BOUNDSCOPE_PRISM_FETCH_HIGHWAY)
  find_package(hwy 1.0.3 CONFIG QUIET)
endif()

if(hwy_FOUND)
  message(STATUS "Highway ${hwy_VERSION} (installed)")
else()
  message(STATUS "Highway 1.2.0 (fetched; install libhwy-dev to avoid this)")
  include(FetchContent)
  set(HWY_ENABLE_TESTS OFF CACHE INTERNAL "")
  set(HWY_ENABLE_EXAMPLES OFF CACHE INTERNAL "")
  set(HWY_ENABLE_CONTRIB OFF CACHE INTERNAL "")
  set(HWY_ENABLE_INSTALL ON CACHE INTERNAL "")
  set(HWY_FORCE_STATIC_LIBS ON CACHE INTERNAL "")
  FetchContent_Declare(highway
    URL https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz
    URL_HASH SHA256=7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343)
  FetchContent_MakeAvailable(highway)
  set_target_properties(hwy PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(NOT TARGET hwy::hwy)
    add_library(hwy::hwy ALIAS hwy)
  endif()
endif()
