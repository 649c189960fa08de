// SPDX-License-Identifier: Apache-2.0
// A client on a bare socket, which can do what a polite one cannot.
#pragma once

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>

#include "agent/base/handle.h"

namespace inferwire::prometheus {

class HttpClient {
 public:
  // `address` as HttpServer::address() gives it.
  explicit HttpClient(const std::string& address, int receive_buffer_bytes = 0) {
    const auto colon = address.rfind(':');
    std::string host = address.substr(0, colon);
    if (host.front() == '[') host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* info = nullptr;
    if (::getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &info) != 0) return;
    socket_.reset(::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (receive_buffer_bytes > 0) {
      ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    }
    connected_ = ::connect(socket_.get(), info->ai_addr, info->ai_addrlen) == 0;
    ::freeaddrinfo(info);
  }

  bool connected() const { return connected_; }

  bool send(std::string_view text) {
    return ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }

  // True if the server has closed the connection, waiting for that if need be.
  bool closed_within(std::chrono::milliseconds wait) {
    pollfd poll_fd{socket_.get(), POLLIN, 0};
    if (::poll(&poll_fd, 1, static_cast<int>(wait.count())) <= 0) return false;
    char byte;
    return ::recv(socket_.get(), &byte, 1, MSG_PEEK) <= 0;
  }

  // Reads until `end` has come; false if that takes more than 20 s.
  bool read_until(std::string_view end) {
    std::string text;
    char byte;
    while (!text.ends_with(end)) {
      pollfd poll_fd{socket_.get(), POLLIN, 0};
      if (::poll(&poll_fd, 1, 20'000) <= 0 || ::recv(socket_.get(), &byte, 1, 0) <= 0) return false;
      text += byte;
    }
    return true;
  }

  // All until the server closes; at most 20 s.
  std::string read_to_end() {
    std::string text;
    char buffer[16384];
    for (;;) {
      pollfd poll_fd{socket_.get(), POLLIN, 0};
      if (::poll(&poll_fd, 1, 20'000) <= 0) return text + "<timeout>";
      const ssize_t count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
      if (count <= 0) return text;
      text.append(buffer, static_cast<std::size_t>(count));
    }
  }

  static std::string ask(const std::string& address, std::string_view method, std::string_view path,
                         std::string_view body = "") {
    HttpClient client(address);
    std::string request =
        std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    if (!body.empty()) request += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    client.send(request + "\r\n" + std::string(body));
    return client.read_to_end();
  }

 private:
  base::UniqueFd socket_;
  bool connected_ = false;
};

}  // namespace inferwire::prometheus
