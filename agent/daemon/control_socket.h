// SPDX-License-Identifier: Apache-2.0
// The agent's unix socket: a client sends one line ("top", "status"), gets one JSON object and a line end, and the
// connection ends. Served inside the reader's poll loop: never waits for a client, holds at most kClientsMax.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/base/handle.h"
#include "agent/base/result.h"

namespace inferwire::daemon {

class ControlSocket {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Answer = std::function<std::string(std::string_view request)>;

  static constexpr std::size_t kClientsMax = 16;
  static constexpr std::size_t kRequestBytesMax = 256;
  static constexpr std::chrono::seconds kPatience{5};

  // Makes the folder if it is missing, and the socket with mode 0600. A socket that nobody listens on any more is
  // replaced; one that has a listener is an error.
  static base::Result<std::unique_ptr<ControlSocket>> open(const std::string& path);
  ~ControlSocket();

  // What to wait for, appended to `fds`.
  void wait_for(std::vector<pollfd>& fds) const;
  // Call it after poll(2): takes what has come, answers, sends on. Clients past their time are dropped.
  void serve(const Answer& answer, Time now);

 private:
  struct Client {
    base::UniqueFd fd;
    std::string request;
    std::string answer;
    std::size_t sent = 0;
    bool answered = false;
    Time deadline;
  };

  ControlSocket(std::string path, base::UniqueFd listener);
  static bool advance(Client& client, const Answer& answer);  // false: done with it

  std::string path_;
  base::UniqueFd listener_;
  std::vector<Client> clients_;
};

}  // namespace inferwire::daemon
