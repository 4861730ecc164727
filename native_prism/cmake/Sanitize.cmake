# PRISM_SANITIZE and PRISM_FUZZ: for development builds; nothing of it is installed.

set(PRISM_SANITIZE "" CACHE STRING "Sanitizers to build with, as the compiler names them, such as \"address;undefined\"")
option(PRISM_FUZZ "Build prism_fuzz, a libFuzzer program of the array functions; needs Clang" OFF)

# Instruments what links `target`, an interface library.
function(prism_sanitize target)
  set(sanitizers ${PRISM_SANITIZE})
  if(PRISM_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      message(FATAL_ERROR "PRISM_FUZZ needs Clang with libFuzzer (Debian: apt install clang libclang-rt-14-dev, then "
        "CXX=clang++), but the compiler is ${CMAKE_CXX_COMPILER_ID}.")
    endif()
    list(APPEND sanitizers fuzzer-no-link)
  endif()
  if(NOT sanitizers)
    return()
  endif()
  if(MSVC)
    message(FATAL_ERROR "PRISM_SANITIZE and PRISM_FUZZ need GCC or Clang.")
  endif()
  list(JOIN sanitizers "," joined)
  # An error ends the program, so that ctest sees it.
  target_compile_options(${target} INTERFACE -fsanitize=${joined} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_link_options(${target} INTERFACE -fsanitize=${joined})
endfunction()
