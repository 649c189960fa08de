// SPDX-License-Identifier: Apache-2.0
// Reads one HTTP/1.1 response byte by byte: framing, body, and the events in the body. Slow and
// plain on purpose: it is what other readers are compared with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace inferwire::rig {

class ResponseReader {
 public:
  struct Event {
    char kind;               // the letters of tests/support/README.md; content is always `c`
    std::uint64_t end_byte;  // bytes of this response up to and with the event's last one
  };

  // Takes bytes until the response is complete; returns how many it took.
  std::size_t feed(std::string_view bytes);
  // The connection ended: true when that is how this body ends.
  bool end_of_connection();

  bool complete() const { return state_ == State::kComplete; }
  bool head_complete() const { return state_ != State::kHead; }
  bool started() const { return fed_ > 0; }
  bool malformed() const { return malformed_; }
  int status() const { return status_; }
  std::uint64_t body_bytes() const { return body_bytes_; }
  std::uint64_t body_hash() const { return body_hash_; }  // FNV-1a, 64 bits
  const std::vector<Event>& events() const { return events_; }

 private:
  // kHead -> kBody | kChunkSize; kChunkSize -> kChunk -> kChunkEnd -> kChunkSize | kTrailer
  enum class State { kHead, kBody, kUntilClose, kChunkSize, kChunk, kChunkEnd, kTrailer, kComplete };

  void take(char byte);
  void end_head();
  void end_chunk_size();
  void take_body(char byte);
  void end_line();
  std::string header(const std::string& name) const;

  State state_ = State::kHead;
  std::string text_;  // of the head, a chunk-size line or the trailer
  std::map<std::string, std::string> headers_;
  int status_ = 0;
  std::uint64_t left_ = 0;  // of a body with a length, or of a chunk
  std::uint64_t fed_ = 0;
  std::uint64_t body_bytes_ = 0;
  std::uint64_t body_hash_ = 0xcbf29ce484222325ULL;
  enum class Framing { kNone, kSse, kNdjson } framing_ = Framing::kNone;
  std::string line_;
  std::string event_;
  std::vector<Event> events_;
  bool malformed_ = false;
};

}  // namespace inferwire::rig
