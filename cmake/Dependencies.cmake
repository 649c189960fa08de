# SPDX-License-Identifier: Apache-2.0
# The libraries we link, all from Debian 12; deploy/packages/build.txt installs them. Target names to link:
#
#   PkgConfig::LIBBPF         agent/capture only              CLI11::CLI11                  command line
#   PkgConfig::LIBELF         symbol look-up                  yaml-cpp                      configuration
#   ZLIB::ZLIB                                                nlohmann_json::nlohmann_json  records, status
#   tl::expected              Result<T>                       Threads::Threads              agent/daemon, servers
#   spdlog::spdlog            agent/base/log.h                PkgConfig::LIBMICROHTTPD      the /metrics server
#   PkgConfig::LIBCAP         capabilities                    GTest::gtest_main             tests
#   PkgConfig::LIBCURL        the watch of pods

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(LIBBPF REQUIRED IMPORTED_TARGET libbpf>=1.0)
pkg_check_modules(LIBELF REQUIRED IMPORTED_TARGET libelf)
pkg_check_modules(LIBCAP REQUIRED IMPORTED_TARGET libcap)
pkg_check_modules(LIBCURL REQUIRED IMPORTED_TARGET libcurl>=7.85)
pkg_check_modules(LIBMICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd>=0.9.70)
find_package(ZLIB REQUIRED)
find_package(tl-expected REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
if(BUILD_TESTING)
  find_package(GTest REQUIRED)
endif()
