// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/control_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace inferwire::daemon {
namespace {

constexpr char kWhat[] = "open the agent's socket";

base::UniqueFd make_socket() { return base::UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

bool somebody_listens(const sockaddr_un& address) {
  const base::UniqueFd probe = make_socket();
  return probe && connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

ControlSocket::ControlSocket(std::string path, base::UniqueFd listener)
    : path_(std::move(path)), listener_(std::move(listener)) {}

ControlSocket::~ControlSocket() { unlink(path_.c_str()); }

base::Result<std::unique_ptr<ControlSocket>> ControlSocket::open(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return base::fail(kWhat, path, "the path is too long", "give a shorter one with --socket");
  }
  std::memcpy(address.sun_path, path.data(), path.size());

  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) return base::fail(kWhat, folder.string(), error.message(), "give another path with --socket");

  base::UniqueFd listener = make_socket();
  if (!listener) return base::fail(kWhat, path, base::errno_text(errno), "");
  if (somebody_listens(address)) {
    return base::fail(kWhat, path, "another agent listens on it", "stop it, or give another path with --socket");
  }
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) unlink(path.c_str());
  fchmod(listener.get(), 0600);  // before bind(): there is no moment at which others may connect
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), kClientsMax) != 0) {
    return base::fail(kWhat, path, base::errno_text(errno), "give another path with --socket");
  }
  return std::unique_ptr<ControlSocket>(new ControlSocket(path, std::move(listener)));
}

void ControlSocket::wait_for(std::vector<pollfd>& fds) const {
  if (clients_.size() < kClientsMax) fds.push_back({listener_.get(), POLLIN, 0});
  for (const Client& client : clients_) {
    fds.push_back({client.fd.get(), static_cast<short>(client.answered ? POLLOUT : POLLIN), 0});
  }
}

bool ControlSocket::advance(Client& client, const Answer& answer) {
  while (!client.answered) {
    char block[kRequestBytesMax];
    const ssize_t got = recv(client.fd.get(), block, sizeof block, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got < 0 || client.request.size() > kRequestBytesMax) return false;
    client.request.append(block, static_cast<std::size_t>(got));
    const std::size_t end = client.request.find('\n');
    if (end == std::string::npos && got > 0) continue;
    client.answer = answer(std::string_view(client.request).substr(0, end)) + "\n";
    client.answered = true;
  }
  while (client.sent < client.answer.size()) {
    const ssize_t sent =
        send(client.fd.get(), client.answer.data() + client.sent, client.answer.size() - client.sent, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (sent <= 0) return false;
    client.sent += static_cast<std::size_t>(sent);
  }
  return false;
}

void ControlSocket::serve(const Answer& answer, Time now) {
  while (clients_.size() < kClientsMax) {
    base::UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) break;
    clients_.push_back({std::move(fd), {}, {}, 0, false, now + kPatience});
  }
  std::erase_if(clients_, [&](Client& client) { return !advance(client, answer) || now > client.deadline; });
}

}  // namespace inferwire::daemon
