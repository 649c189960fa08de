// SPDX-License-Identifier: Apache-2.0
// A log of JSON objects, one a line, each written with one write(2): whole lines also after SIGKILL.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/base/fatal.h"
#include "tests/support/base/fd.h"

namespace inferwire::rig {

class JsonLines {
 public:
  // An empty path means: write nothing.
  explicit JsonLines(const std::string& path) {
    if (path.empty()) return;
    fd_ = Fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!fd_.valid()) fatal_errno("opening the log " + path);
  }
  bool enabled() const { return fd_.valid(); }
  void append(const nlohmann::ordered_json& object) {
    if (!enabled()) return;
    const std::string line = object.dump() + "\n";
    const std::lock_guard guard(mutex_);
    if (write(fd_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      fatal_errno("writing the log");
    }
  }

 private:
  Fd fd_;
  std::mutex mutex_;
};

}  // namespace inferwire::rig
