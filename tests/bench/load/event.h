// SPDX-License-Identifier: Apache-2.0
// What the load says on the wire: an OpenAI-compatible stream as a server behind uvicorn or Node writes it, one event
// per HTTP chunk and per write.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace inferwire::bench {

// Head of the streamed answer.
inline constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\ndate: Thu, 09 Oct 2025 09:00:00 GMT\r\nserver: uvicorn\r\ncache-control: no-cache\r\n"
    "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

// Answer to a GET.
inline constexpr std::string_view kSmallAnswer =
    "HTTP/1.1 200 OK\r\nserver: bench\r\ncontent-type: text/plain\r\ncontent-length: 12\r\n\r\nhello world\n";

// "SIZE\r\nBODY\r\n".
std::string http_chunk(std::string_view body);

// Events, framed as HTTP chunks.
std::string role_event();
std::string content_event();  // about 300 bytes on the wire
std::string last_events();    // finish_reason, [DONE], the terminating chunk

// A request for `events` content events at `per_second` (0: as fast as the connection takes them), the first after
// `delay_ms`.
std::string stream_request(unsigned events, double per_second, unsigned delay_ms);
std::string small_request();

}  // namespace inferwire::bench
