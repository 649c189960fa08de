// SPDX-License-Identifier: Apache-2.0
#include "tests/support/clients/response_reader.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace inferwire::rig {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

char sse_kind(const std::string& event) {
  if (event[0] == ':') return 'p';
  if (contains(event, "event: ping")) return 'P';
  if (contains(event, "data: [DONE]")) return 'd';
  if (contains(event, "\"error\":")) return 'e';
  if (contains(event, "\"usage\":")) return 'u';
  if (contains(event, "\"role\":")) return 'r';
  if (contains(event, "\"reasoning_content\":")) return 't';
  if (contains(event, "\"tool_calls\":")) return 'k';
  if (contains(event, "\"delta\":{}")) return 'f';
  return 'c';
}

char ndjson_kind(const std::string& line) {
  if (contains(line, "\"error\":")) return 'e';
  if (contains(line, "\"done\":true")) return 'd';
  if (contains(line, "\"thinking\":")) return 't';
  return contains(line, "\"content\":\"\"") ? 'r' : 'c';
}

}  // namespace

std::size_t ResponseReader::feed(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (complete() || malformed_) return i;
    ++fed_;
    take(bytes[i]);
  }
  return bytes.size();
}

bool ResponseReader::end_of_connection() {
  if (state_ == State::kUntilClose) state_ = State::kComplete;
  return complete();
}

void ResponseReader::take(char byte) {
  switch (state_) {
    case State::kHead:
      text_ += byte;
      if (text_.ends_with("\r\n\r\n")) end_head();
      break;
    case State::kBody:
      take_body(byte);
      if (--left_ == 0) state_ = State::kComplete;
      break;
    case State::kUntilClose:
      take_body(byte);
      break;
    case State::kChunkSize:
      text_ += byte;
      if (text_.ends_with("\r\n")) end_chunk_size();
      break;
    case State::kChunk:
      take_body(byte);
      if (--left_ == 0) state_ = State::kChunkEnd;
      break;
    case State::kChunkEnd:
      text_ += byte;
      if (text_.size() == 2) {
        malformed_ = text_ != "\r\n";
        text_.clear();
        state_ = State::kChunkSize;
      }
      break;
    case State::kTrailer:
      text_ += byte;
      if (text_ == "\r\n" || text_.ends_with("\r\n\r\n")) state_ = State::kComplete;
      break;
    case State::kComplete:
      break;
  }
}

std::string ResponseReader::header(const std::string& name) const {
  const auto found = headers_.find(name);
  return found == headers_.end() ? "" : found->second;
}

void ResponseReader::end_head() {
  status_ = text_.size() > 12 ? std::atoi(text_.c_str() + 9) : 0;
  malformed_ = status_ < 100;
  headers_.clear();
  for (std::size_t at = text_.find("\r\n") + 2; at + 2 < text_.size();) {
    const std::size_t end = text_.find("\r\n", at);
    const std::string line = text_.substr(at, end - at);
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos) {
      const std::size_t value = line.find_first_not_of(' ', colon + 1);
      headers_[lower(line.substr(0, colon))] = value == std::string::npos ? "" : line.substr(value);
    }
    at = end + 2;
  }
  text_.clear();
  if (status_ < 200) return;  // an interim response: the next head follows

  const std::string type = header("content-type");
  if (type.rfind("text/event-stream", 0) == 0) framing_ = Framing::kSse;
  if (type.rfind("application/x-ndjson", 0) == 0) framing_ = Framing::kNdjson;
  if (status_ == 204 || status_ == 304) {
    state_ = State::kComplete;
  } else if (lower(header("transfer-encoding")) == "chunked") {
    state_ = State::kChunkSize;
  } else if (!header("content-length").empty()) {
    left_ = std::strtoull(header("content-length").c_str(), nullptr, 10);
    state_ = left_ == 0 ? State::kComplete : State::kBody;
  } else {
    state_ = State::kUntilClose;
  }
}

void ResponseReader::end_chunk_size() {
  char* end = nullptr;
  left_ = std::strtoull(text_.c_str(), &end, 16);
  malformed_ = end == text_.c_str();
  text_.clear();
  state_ = left_ == 0 ? State::kTrailer : State::kChunk;
}

void ResponseReader::take_body(char byte) {
  ++body_bytes_;
  body_hash_ = (body_hash_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  if (framing_ == Framing::kNone) return;
  if (byte != '\n') {
    line_ += byte;
    return;
  }
  if (line_.ends_with('\r')) line_.pop_back();
  end_line();
  line_.clear();
}

void ResponseReader::end_line() {
  if (framing_ == Framing::kNdjson) {
    if (!line_.empty()) events_.push_back({ndjson_kind(line_), fed_});
  } else if (!line_.empty()) {
    event_ += line_ + "\n";
  } else if (!event_.empty()) {
    events_.push_back({sse_kind(event_), fed_});
    event_.clear();
  }
}

}  // namespace inferwire::rig
