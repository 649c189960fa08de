# SPDX-License-Identifier: Apache-2.0
# Kernel programs: <name>.bpf.c -> <name>.bpf.o (clang) -> <name>.skel.h (bpftool), rebuilt when any included header
# changes. Kernel types come from bpf/include/inferwire/kernel_types.h (CO-RE), so that the machine that builds needs
# neither BTF nor kernel headers of its target.
#
#   inferwire_add_skeletons(<target> SOURCES <file.bpf.c>... [INCLUDES <dir>...])
#
# makes an INTERFACE library: link it and `#include "<name>.skel.h"`.

find_program(INFERWIRE_BPF_CLANG NAMES clang clang-14 REQUIRED)
find_program(INFERWIRE_BPFTOOL NAMES bpftool PATHS /usr/sbin /sbin REQUIRED)
find_program(INFERWIRE_LLVM_STRIP NAMES llvm-strip llvm-strip-14 REQUIRED)

# __TARGET_ARCH_* selects the register layout in bpf_tracing.h.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(INFERWIRE_BPF_ARCH x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(INFERWIRE_BPF_ARCH arm64)
else()
  message(FATAL_ERROR "no BPF register layout known for ${CMAKE_SYSTEM_PROCESSOR}; add it in cmake/Bpf.cmake")
endif()

set(INFERWIRE_BPF_FLAGS
  -g -O2 -std=gnu11 -target bpf -mcpu=v3 "-D__TARGET_ARCH_${INFERWIRE_BPF_ARCH}"
  -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
  "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")
if(INFERWIRE_WERROR)
  list(APPEND INFERWIRE_BPF_FLAGS -Werror)
endif()

add_custom_target(skeletons) # all of them

function(inferwire_add_skeletons target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;INCLUDES")
  set(out_dir "${CMAKE_BINARY_DIR}/skeletons/${target}")
  file(MAKE_DIRECTORY "${out_dir}")

  set(includes -I "${CMAKE_SOURCE_DIR}/bpf/include" -I "${CMAKE_SOURCE_DIR}/bpf/lib")
  foreach(dir IN LISTS arg_INCLUDES)
    list(APPEND includes -I "${dir}")
  endforeach()
  foreach(dir IN LISTS LIBBPF_INCLUDE_DIRS)
    list(APPEND includes -isystem "${dir}")
  endforeach()
  if(CMAKE_LIBRARY_ARCHITECTURE) # <asm/types.h>, which clang does not find by itself for the bpf target
    list(APPEND includes -idirafter "/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}")
  endif()

  set(skeletons)
  foreach(source IN LISTS arg_SOURCES)
    get_filename_component(source "${source}" ABSOLUTE)
    get_filename_component(file "${source}" NAME)
    string(REGEX REPLACE "\\.bpf\\.c$" "" name "${file}")
    string(MAKE_C_IDENTIFIER "${name}" identifier)
    set(object "${out_dir}/${name}.bpf.o")
    set(skeleton "${out_dir}/${name}.skel.h")
    file(RELATIVE_PATH shown "${CMAKE_SOURCE_DIR}" "${source}")

    add_custom_command(
      OUTPUT "${object}"
      COMMAND "${INFERWIRE_BPF_CLANG}" ${INFERWIRE_BPF_FLAGS} ${includes}
              -MD -MT "${object}" -MF "${object}.d" -c "${source}" -o "${object}"
      COMMAND "${INFERWIRE_LLVM_STRIP}" -g "${object}" # DWARF goes, BTF stays
      DEPENDS "${source}"
      DEPFILE "${object}.d"
      COMMENT "BPF ${shown}"
      VERBATIM)
    # By way of a temporary file: the shell creates the target of ">" even when bpftool fails.
    add_custom_command(
      OUTPUT "${skeleton}"
      COMMAND sh -c "\"$1\" gen skeleton \"$2\" name \"$3\" > \"$4.tmp\" && mv \"$4.tmp\" \"$4\"" sh
              "${INFERWIRE_BPFTOOL}" "${object}" "${identifier}_bpf" "${skeleton}"
      DEPENDS "${object}"
      COMMENT "Skeleton ${name}.skel.h"
      VERBATIM)
    list(APPEND skeletons "${skeleton}")
  endforeach()

  add_custom_target("${target}_files" DEPENDS ${skeletons})
  add_dependencies(skeletons "${target}_files")
  add_library("${target}" INTERFACE)
  add_dependencies("${target}" "${target}_files")
  target_include_directories("${target}" SYSTEM INTERFACE "${out_dir}") # generated code: not held to our warnings
  target_link_libraries("${target}" INTERFACE PkgConfig::LIBBPF)
endfunction()
