// SPDX-License-Identifier: Apache-2.0
// One accepted connection of the raw scripted server: reads requests, plays their scripts, logs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/support/base/fd.h"
#include "tests/support/base/json_lines.h"
#include "tests/support/base/socket.h"
#include "tests/support/servers/raw/script.h"

namespace inferwire::rig {

struct ServeOptions {
  std::int64_t read_delay_ns = 0;  // waited before the first read of a connection
};

// Serves until the peer closes, a script ends the connection, or the bytes are no HTTP/1.1.
class Connection {
 public:
  Connection(Fd socket, Endpoint remote, std::int64_t accepted_ns, const ServeOptions& options, JsonLines& log);
  void serve();

 private:
  struct Request {
    std::string method;
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;
    std::size_t body_bytes_left = 0;  // not yet taken from the socket
    std::int64_t head_ns = 0;
    std::int64_t read_ns = 0;
  };

  bool fill();  // reads more into `buffer_`; false at end or error
  std::optional<Request> read_head();
  bool read_body(Request& request);
  bool answer(const Request& request);  // false: the connection is over
  bool play(const Script& script, const Request& request);
  std::string response_head(const Script& script, std::size_t body_bytes) const;
  bool write_steps(const Script& script, std::int64_t start_ns, const std::string& held_head);
  bool write_pieces(const Script& script, const std::string& bytes, bool last);
  bool send_all(const char* bytes, std::size_t count, int flags);
  void drain_upload(std::size_t bytes);

  Fd socket_;
  Endpoint remote_;
  std::int64_t accepted_ns_;
  ServeOptions options_;
  JsonLines& log_;
  std::string buffer_;
  std::uint64_t ordinal_ = 0;
  nlohmann::ordered_json line_;
};

}  // namespace inferwire::rig
