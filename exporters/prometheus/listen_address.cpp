// SPDX-License-Identifier: Apache-2.0
#include "exporters/prometheus/listen_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>

namespace inferwire::prometheus {
namespace {

constexpr int kBacklog = 128;

struct HostAndPort {
  std::string host;
  std::string port;
};

std::optional<HostAndPort> split(std::string_view address) {
  const auto colon = address.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = address.substr(0, colon);
  const std::string_view port = address.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;  // IPv6 without brackets: the port would be a guess
  }
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (host.empty() || port.empty() || error != std::errc() || end != port.data() + port.size()) return std::nullopt;
  return HostAndPort{std::string(host), std::string(port)};
}

struct AddrinfoDeleter {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

std::string fix_for(int error_number) {
  switch (error_number) {
    case EADDRINUSE:
      return "stop the process that listens there (ss -ltnp shows it), or choose another with --listen";
    case EADDRNOTAVAIL:
      return "use an address of this machine (ip addr), or 0.0.0.0 for all of them";
    case EACCES:
      return "choose a port above 1023 with --listen, or grant CAP_NET_BIND_SERVICE";
    case EAFNOSUPPORT:
      return "this kernel has no support for that address family; use the other one";
    default:
      return "choose another address with --listen ADDR:PORT";
  }
}

std::string bound_address(int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  auto* const generic = reinterpret_cast<sockaddr*>(&storage);
  if (::getsockname(socket, generic, &length) != 0 ||
      ::getnameinfo(generic, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  const std::string name = storage.ss_family == AF_INET6 ? "[" + std::string(host) + "]" : std::string(host);
  return name + ":" + port;
}

}  // namespace

base::Result<Listener> listen_on(std::string_view address) {
  const auto fail_with = [&](int error_number) {
    return base::fail("listen on", address, base::errno_text(error_number), fix_for(error_number));
  };
  const auto parts = split(address);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (!parts || ::getaddrinfo(parts->host.c_str(), parts->port.c_str(), &hints, &list) != 0) {
    return base::fail("listen on", address, "it is not a numeric address and port",
                      "write it as 127.0.0.1:9810, 0.0.0.0:9810 or [::1]:9810");
  }
  const std::unique_ptr<addrinfo, AddrinfoDeleter> info(list);

  Listener listener;
  listener.ipv6 = info->ai_family == AF_INET6;
  listener.socket.reset(::socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.socket) return fail_with(errno);
  const int on = 1;
  const int off = 0;
  const int socket = listener.socket.get();
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // restart while old connections are in TIME_WAIT
  if (listener.ipv6) ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(socket, info->ai_addr, info->ai_addrlen) != 0) return fail_with(errno);
  if (::listen(socket, kBacklog) != 0) return fail_with(errno);
  listener.address = bound_address(socket);
  return listener;
}

}  // namespace inferwire::prometheus
