# SPDX-License-Identifier: Apache-2.0
# How tests are declared. Labels decide when ./run test runs them:
#   unit    pure or on temporary folders; also run under the sanitizers
#   fuzz    every corpus input once; also run under the sanitizers
#   lint    rules about the source tree
#   kernel  needs root and a BPF-capable kernel; one at a time
#   e2e     the built binary with real servers and clients; one at a time
#
#   inferwire_test(<name> SOURCES ... [LIBS ...] [LABELS unit] [TIMEOUT seconds] [SERIAL] [WHOLE])
#     A GoogleTest program; each case is a ctest test "<name>.<Suite>.<Case>". WHOLE: one ctest test for the program
#     (for programs with an expensive set-up that all cases share).
#   inferwire_script_test(<name> COMMAND ... LABELS ... [TIMEOUT seconds] [SERIAL])
#     Any program; exit status 77 means skipped (it prints why).
#   inferwire_fuzz_target(<name> SOURCES ... [LIBS ...] [CORPUS folder])
#     LLVMFuzzerTestOneInput: a libFuzzer program in the fuzz preset (target `fuzzers`); elsewhere a test that feeds it
#     every file of the corpus (default: corpus/<name> beside the CMakeLists.txt).

include(GoogleTest)

function(inferwire_test name)
  if(INFERWIRE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;WHOLE" "TIMEOUT" "SOURCES;LIBS;LABELS")
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  set(properties LABELS "${arg_LABELS}" TIMEOUT "${arg_TIMEOUT}")
  if(arg_SERIAL OR "kernel" IN_LIST arg_LABELS OR "e2e" IN_LIST arg_LABELS)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()

  add_executable("${name}" ${arg_SOURCES})
  set_target_properties("${name}" PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_link_libraries("${name}" PRIVATE ${arg_LIBS} GTest::gtest_main)
  # Where the source tree is, for fixtures; where the built programs are.
  target_compile_definitions("${name}" PRIVATE
    "INFERWIRE_SOURCE_DIR=\"${CMAKE_SOURCE_DIR}\"" "INFERWIRE_BINARY_DIR=\"${CMAKE_BINARY_DIR}\"")
  if(arg_WHOLE)
    add_test(NAME "${name}" COMMAND "${name}")
    set_tests_properties("${name}" PROPERTIES ${properties} SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  else()
    gtest_discover_tests("${name}" TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
  endif()
endfunction()

function(inferwire_script_test name)
  if(INFERWIRE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "TIMEOUT" "COMMAND;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_test(NAME "${name}" COMMAND ${arg_COMMAND} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
  set_tests_properties("${name}" PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT "${arg_TIMEOUT}" SKIP_RETURN_CODE 77
    ENVIRONMENT "INFERWIRE_BINARY_DIR=${CMAKE_BINARY_DIR}")
  if(arg_SERIAL OR "kernel" IN_LIST arg_LABELS OR "e2e" IN_LIST arg_LABELS)
    set_tests_properties("${name}" PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()

add_custom_target(fuzzers)

function(inferwire_fuzz_target name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CORPUS;TIMEOUT" "SOURCES;LIBS")
  if(NOT arg_CORPUS)
    set(arg_CORPUS "${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  get_filename_component(arg_CORPUS "${arg_CORPUS}" ABSOLUTE)
  if(INFERWIRE_FUZZ)
    add_executable("${name}" ${arg_SOURCES})
    target_link_options("${name}" PRIVATE -fsanitize=fuzzer)
    set_target_properties("${name}" PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz")
    add_dependencies(fuzzers "${name}")
    # ./run fuzz reads this: which corpus belongs to which program.
    file(GENERATE OUTPUT "${CMAKE_BINARY_DIR}/fuzz/${name}.corpus" CONTENT "${arg_CORPUS}\n")
  else()
    add_executable("${name}" ${arg_SOURCES} "${CMAKE_SOURCE_DIR}/tests/support/corpus_replay_main.cpp")
    set_target_properties("${name}" PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    add_test(NAME "corpus.${name}" COMMAND "${name}" "${arg_CORPUS}")
    set_tests_properties("corpus.${name}" PROPERTIES LABELS fuzz TIMEOUT "${arg_TIMEOUT}")
  endif()
  target_link_libraries("${name}" PRIVATE ${arg_LIBS})
endfunction()
