// SPDX-License-Identifier: Apache-2.0
// The node's own pods, from the API server or the kubelet: exact owners, where names of folders only let one guess.
//
//   pods      GET /api/v1/pods?fieldSelector=spec.nodeName=<node>, then the same with watch (rights: get, list and
//   watch
//             on pods)
//   kubelet   GET /pods of this node's kubelet, every ten seconds (right: get on nodes/pods)
//
// It runs in a thread of its own, made by the caller. When it fails it tries again, later and later up to a minute;
// what it knew stays known.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "agent/base/result.h"
#include "agent/host/pod_objects.h"

namespace inferwire::host {

struct PodWatchOptions {
  bool kubelet = false;
  std::string url;  // "https://10.96.0.1:443"
  std::string token_file;
  std::string ca_file;  // who may have signed the server's certificate
  std::string node;
  std::chrono::milliseconds poll_every{10'000};
  std::chrono::milliseconds retry_first{1'000};  // doubled each time, up to retry_most
  std::chrono::milliseconds retry_most{60'000};
};

class PodWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit PodWatch(PodWatchOptions options);
  ~PodWatch();
  PodWatch(const PodWatch&) = delete;
  PodWatch& operator=(const PodWatch&) = delete;

  // Until stop().
  void run();
  void stop();  // by any thread

  // By any thread. Pods that are gone are known for ten minutes more, and at most 4096 in all.
  std::optional<PodName> find(std::string_view uid, std::string_view short_id) const;
  // Why pods are not watched; empty while they are.
  std::string problem() const;

 private:
  class Http;
  struct Known {
    PodObject pod;
    std::optional<Time> gone_at;
  };
  struct Failure {
    std::string why;
    bool too_old = false;  // the server has forgotten what came after `version_`: nothing is wrong
  };
  using Outcome = tl::expected<void, Failure>;

  Outcome list();
  Outcome watch();
  Outcome on_event(std::string_view line);
  void learn(PodObject pod);
  void set_gone(const std::string& uid);
  void forget();
  void set_problem(std::string problem);

  PodWatchOptions options_;
  std::unique_ptr<Http> http_;
  std::string version_;   // resourceVersion to go on from; empty: list first
  bool too_old_ = false;  // the server's cache gave a version that it then refused: the list must be fresh
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Known> pods_;  // by uid
  std::string problem_ = "no answer yet";
};

}  // namespace inferwire::host
