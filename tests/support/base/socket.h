// SPDX-License-Identifier: Apache-2.0
// The few socket calls that the rigs share. Failures of set-up end the program.
#pragma once

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "tests/support/base/fatal.h"
#include "tests/support/base/fd.h"

namespace inferwire::rig {

struct Endpoint {
  std::string address;
  std::uint16_t port = 0;
};

inline Endpoint endpoint_of(const sockaddr_storage& storage) {
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    return {text, ntohs(v6.sin6_port)};
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
  inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
  return {text, ntohs(v4.sin_port)};
}

inline Endpoint local_endpoint(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return endpoint_of(storage);
}

// Numeric addresses only.
inline sockaddr_storage make_address(const Endpoint& endpoint, socklen_t& length) {
  sockaddr_storage storage{};
  auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
  auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
  if (inet_pton(AF_INET, endpoint.address.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    length = sizeof(sockaddr_in);
  } else if (inet_pton(AF_INET6, endpoint.address.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(endpoint.port);
    length = sizeof(sockaddr_in6);
  } else {
    fatal("not an address: " + endpoint.address);
  }
  return storage;
}

inline void set_option(int fd, int level, int name, int value, const char* what) {
  if (setsockopt(fd, level, name, &value, sizeof(value)) != 0) fatal_errno(what);
}

// The next close() sends RST instead of FIN.
inline void reset_on_close(int fd) {
  const linger abort{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
}

}  // namespace inferwire::rig
