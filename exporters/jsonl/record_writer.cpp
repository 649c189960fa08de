// SPDX-License-Identifier: Apache-2.0
#include "exporters/jsonl/record_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <numeric>
#include <utility>

#include "agent/base/log.h"

namespace inferwire::jsonl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPollPeriod = std::chrono::milliseconds(50);

std::string fix_for(int error_number) {
  switch (error_number) {
    case ENOENT:
      return "create its folder first";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose a file that this user may write with --records";
    case EISDIR:
      return "name a file in that folder with --records";
    case ENXIO:
      return "start the reader of the pipe first";
    default:
      return "choose another file with --records, or - for standard output";
  }
}

base::Result<base::UniqueFd> open_path(const std::string& path) {
  const bool standard_output = path == "-";
  // O_NONBLOCK: a pipe whose reader sleeps must not hold the thread for ever. It does nothing to regular files.
  // Standard output's flags are shared with other processes and stay as they are (see wait_until_writable).
  base::UniqueFd fd(
      standard_output ? ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                      : ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600));
  if (!fd) {
    const int error_number = errno;
    return base::fail("write records to", standard_output ? "standard output" : path, base::errno_text(error_number),
                      fix_for(error_number));
  }
  return fd;
}

bool is_regular_file(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

base::Result<std::unique_ptr<RecordWriter>> RecordWriter::open(RecordWriterOptions options) {
  auto fd = open_path(options.path);
  if (!fd) return tl::unexpected(fd.error());
  std::unique_ptr<RecordWriter> writer(new RecordWriter(std::move(options), std::move(*fd)));
  // Signals are the main thread's. SIGPIPE stays blocked for good: a reader that left is an error of write().
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  writer->thread_ = std::thread(&RecordWriter::run, writer.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return writer;
}

RecordWriter::RecordWriter(RecordWriterOptions options, base::UniqueFd fd)
    : options_(std::move(options)), fd_(std::move(fd)), regular_file_(is_regular_file(fd_.get())) {}

RecordWriter::~RecordWriter() { stop(std::chrono::seconds(2)); }

bool RecordWriter::write(std::string line, std::size_t kind) {
  IW_CHECK(line.find('\n') == std::string::npos && kind < kKindsMax);
  line += '\n';
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || queue_bytes_ + line.size() > options_.queue_bytes_max) {
      ++lost_[kind];
      return false;
    }
    queue_bytes_ += line.size();
    queue_.push_back({std::move(line), kind});
  }
  changed_.notify_one();
  return true;
}

void RecordWriter::reopen() {
  {
    const std::lock_guard lock(mutex_);
    reopen_ = options_.path != "-";
  }
  changed_.notify_one();
}

void RecordWriter::stop(std::chrono::milliseconds patience) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      stopping_ = true;
      deadline_ = Clock::now() + patience;
    }
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::uint64_t RecordWriter::written() const {
  const std::lock_guard lock(mutex_);
  return written_;
}

std::uint64_t RecordWriter::lost() const {
  const std::lock_guard lock(mutex_);
  return std::accumulate(lost_.begin(), lost_.end(), std::uint64_t{0});
}

std::uint64_t RecordWriter::lost(std::size_t kind) const {
  const std::lock_guard lock(mutex_);
  return lost_[kind];
}

bool RecordWriter::out_of_patience() const {
  const std::lock_guard lock(mutex_);
  return stopping_ && Clock::now() >= deadline_;
}

void RecordWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !queue_.empty() || reopen_ || stopping_; });
    if (std::exchange(reopen_, false)) {
      lock.unlock();
      open_anew();
      lock.lock();
    }
    if (queue_.empty()) {
      if (stopping_) return;
      continue;
    }
    if (stopping_ && Clock::now() >= deadline_) {
      for (const Line& line : queue_) ++lost_[line.kind];
      queue_.clear();
      return;
    }
    const Line line = std::move(queue_.front());
    queue_.pop_front();
    queue_bytes_ -= line.text.size();
    lock.unlock();
    const bool out = write_line(line.text);
    lock.lock();
    ++(out ? written_ : lost_[line.kind]);
  }
}

void RecordWriter::open_anew() {
  auto fd = open_path(options_.path);
  if (!fd) {
    base::log_warn(fd.error().to_string() + " (the file that was open before goes on)");
    return;
  }
  fd_ = std::move(*fd);
  regular_file_ = is_regular_file(fd_.get());
  torn_ = false;
}

// True if the whole line is out. On failure no part of it is left in a regular file.
bool RecordWriter::write_line(const std::string& line) {
  const std::string whole = torn_ ? "\n" + line : line;
  std::size_t out = 0;
  while (out < whole.size()) {
    std::size_t piece = whole.size() - out;
    if (!regular_file_) {
      if (!wait_until_writable()) break;
      piece = std::min<std::size_t>(piece, PIPE_BUF);
    }
    const ssize_t count = ::write(fd_.get(), whole.data() + out, piece);
    if (count >= 0) {
      out += static_cast<std::size_t>(count);
    } else if (errno != EINTR && errno != EAGAIN) {
      base::log_once(base::LogLevel::kWarn, "jsonl-write",
                     "records are being lost: cannot write to " + options_.path + ": " + base::errno_text(errno));
      break;
    }
  }
  if (out < whole.size()) {
    if (out > 0) forget_torn_line(out);
    return false;
  }
  torn_ = false;
  base::log_again("jsonl-write");
  return true;
}

// A writable pipe has room for PIPE_BUF bytes at least, so a write of no more cannot wait even where the descriptor
// is a blocking one.
bool RecordWriter::wait_until_writable() {
  for (;;) {
    pollfd poll_fd{fd_.get(), POLLOUT, 0};
    const int ready = ::poll(&poll_fd, 1, static_cast<int>(kPollPeriod.count()));
    if (ready > 0) return true;  // errors too: write() tells which
    if (ready < 0 && errno != EINTR) return true;
    if (out_of_patience()) return false;
  }
}

void RecordWriter::forget_torn_line(std::size_t bytes_out) {
  if (regular_file_) {
    // Only this thread appends, so the end of the file is the end of the torn part.
    const off_t end = ::lseek(fd_.get(), 0, SEEK_END);
    if (end >= 0 && ::ftruncate(fd_.get(), end - static_cast<off_t>(bytes_out)) == 0) return;
  }
  torn_ = true;
}

}  // namespace inferwire::jsonl
