// SPDX-License-Identifier: Apache-2.0
// Appends records, one JSON object a line, to a file or standard output. write() never waits: a bounded queue lies
// between it and a thread of the writer's own, and lines that find the queue full, or cannot be written, are lost and
// counted (inferwire_records_lost_total, where="jsonl"). After stop(): lines given = written() + lost(), exactly.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "agent/base/handle.h"
#include "agent/base/result.h"

namespace inferwire::jsonl {

struct RecordWriterOptions {
  std::string path;  // "-": standard output
  std::size_t queue_bytes_max = 4 * 1024 * 1024;
};

class RecordWriter {
 public:
  // A new file gets mode 0600: records hold addresses. A FIFO needs a reader. Errors name the path, why, and a fix.
  static base::Result<std::unique_ptr<RecordWriter>> open(RecordWriterOptions options);

  // stop(2 s).
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  static constexpr std::size_t kKindsMax = 8;

  // One object without its line end. Each line is handed to the system whole and at once, not when a buffer is full.
  // `kind`: what the caller counts losses by, below kKindsMax. False: lost. By any thread.
  bool write(std::string line, std::size_t kind = 0);

  // Opens the path anew before the next line (log rotation; from SIGHUP by way of the daemon, not in a signal
  // handler). If it cannot be opened the old file goes on. No effect on standard output.
  void reopen();

  // Writes what is queued for at most `patience`, then ends; what is left is lost. Later writes are lost. Twice is
  // once.
  void stop(std::chrono::milliseconds patience);

  std::uint64_t written() const;
  std::uint64_t lost() const;
  std::uint64_t lost(std::size_t kind) const;

 private:
  struct Line {
    std::string text;
    std::size_t kind;
  };

  explicit RecordWriter(RecordWriterOptions options, base::UniqueFd fd);

  void run();
  void open_anew();
  bool write_line(const std::string& line);
  bool wait_until_writable();
  void forget_torn_line(std::size_t bytes_out);
  bool out_of_patience() const;

  const RecordWriterOptions options_;

  // Of the thread alone.
  base::UniqueFd fd_;
  bool regular_file_ = false;
  bool torn_ = false;  // part of a line is out: the next one starts on a line of its own

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Line> queue_;
  std::size_t queue_bytes_ = 0;
  std::uint64_t written_ = 0;
  std::array<std::uint64_t, kKindsMax> lost_{};
  bool reopen_ = false;
  bool stopping_ = false;
  std::chrono::steady_clock::time_point deadline_;  // valid once stopping_

  std::thread thread_;
};

}  // namespace inferwire::jsonl
