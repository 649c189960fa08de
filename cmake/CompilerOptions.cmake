# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers and hardening of all native code.

option(INFERWIRE_WERROR "Warnings in our own code are errors" OFF)
option(INFERWIRE_SANITIZE "AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
option(INFERWIRE_FUZZ "Build tests/fuzz with libFuzzer (needs clang)" OFF)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# RelWithDebInfo keeps assert(): CMake's default would define NDEBUG there. Release differs from it in that, and in
# hardening, not in the optimiser.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")

find_program(INFERWIRE_CCACHE ccache)
mark_as_advanced(INFERWIRE_CCACHE)
if(INFERWIRE_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER "${INFERWIRE_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${INFERWIRE_CCACHE}")
endif()

add_compile_definitions("INFERWIRE_VERSION=\"${PROJECT_VERSION}\"")
add_compile_options(
  -Wall -Wextra -Wshadow -Wimplicit-fallthrough -Wvla
  -Wno-missing-field-initializers # designated initialisers leave the rest zero on purpose
  "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>")
if(INFERWIRE_WERROR)
  add_compile_options(-Werror)
endif()

if(INFERWIRE_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized) # false with sanitizers: libstdc++'s own std::function (std::regex)
  endif()
  add_link_options(-fsanitize=address,undefined)
  if(NOT INFERWIRE_FUZZ)
    add_compile_options("$<$<CONFIG:Debug>:-O1>")
  endif()
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  include(CheckPIESupported)
  check_pie_supported()
  add_compile_options(
    -D_FORTIFY_SOURCE=2 -fstack-protector-strong "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")
  add_link_options(-Wl,-z,relro,-z,now)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>") # false for "x" + std::string: GCC bug 105651
  endif()
endif()

if(INFERWIRE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "INFERWIRE_FUZZ needs clang (found ${CMAKE_CXX_COMPILER_ID}): use `cmake --preset fuzz`")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
