// SPDX-License-Identifier: Apache-2.0
// The agent's proof that it sees traffic: a small LLM stream over loopback, made by a child process in another cgroup.
// It must come back as two finished requests, one of each role, with the right counts. The stream is in no metric and
// in no record.
//
//   state     | until
//   waiting   | start(): the child exists, and waits
//   running   | both records have come: passed; the deadline, or wrong counts: failed
//   passed    | -
//   failed    | start(), for another try
//   skipped   | -
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "agent/base/handle.h"
#include "agent/base/result.h"
#include "inferwire/event_abi.h"

namespace inferwire::daemon {

class SelfCheck {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class State { kWaiting, kRunning, kPassed, kFailed, kSkipped };

  static constexpr std::uint32_t kChunks = 6;

  // Makes the child. Call it before there are threads, and before descriptors that the child must not hold.
  SelfCheck();
  ~SelfCheck();
  SelfCheck(const SelfCheck&) = delete;
  SelfCheck& operator=(const SelfCheck&) = delete;

  // Puts the child into a cgroup of its own below `cgroup_root` and lets it make a stream.
  void start(const std::string& cgroup_root, Time now);
  void skip();

  // Advances: reads what the child says, looks at the deadline. Call it every few milliseconds while running.
  void poll(Time now);

  // Is this a record of a self-check's stream? Ours is looked at here; another agent's is nobody's business either.
  bool takes(const iw_record& record, bool final);
  bool takes(const iw_delivery& delivery) const;
  bool takes(const iw_count_key& key) const;
  bool takes(std::uint64_t cgroup_id, std::uint32_t pid, std::string_view comm) const;

  State state() const { return state_; }
  bool ended() const { return state_ >= State::kPassed; }
  // Failed: what was wrong. Passed: empty, or in what way the proof is weaker than it could be.
  const std::string& reason() const { return reason_; }

 private:
  void enter_cgroup(const std::string& cgroup_root);
  bool send_order(const std::string& cgroup_root, const std::string& cgroup, bool stream) const;
  void fail(std::string why);
  void end_child();

  State state_ = State::kWaiting;
  std::string reason_;
  pid_t child_ = -1;
  pid_t child_pid_ = -1;  // also after it has ended
  base::UniqueFd to_child_;
  base::UniqueFd from_child_;
  std::string cgroup_;
  std::uint64_t cgroup_id_ = 0;
  std::uint16_t server_port_ = 0;
  std::uint16_t client_port_ = 0;
  std::uint64_t cookies_[2] = {};
  bool child_done_ = false;
  bool saw_server_ = false;
  bool saw_client_ = false;
  Time deadline_{};
};

}  // namespace inferwire::daemon
