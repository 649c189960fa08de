// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1.1 server for GET and HEAD on fixed paths, safe to face a network: one thread of its own
// (libmicrohttpd with epoll), and clients that stall cost the others nothing.
//
// Limits. A connection is closed when it has been silent for `idle_timeout`. When the server, or one client address,
// has as many connections as it may, the oldest one is closed for the new one: whoever holds connections open loses
// them, a scraper is answered in a few milliseconds. A request that has not been answered in `request_deadline`,
// however busily its bytes drip, is closed when the next client comes.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/base/result.h"

namespace inferwire::prometheus {

struct HttpResponse {
  int status = 200;
  std::shared_ptr<const std::string> body;  // shared: many slow readers of one body hold it once
  std::string content_type = "text/plain; charset=utf-8";
};

// Called on the server's thread; must not wait.
using HttpHandler = std::function<HttpResponse()>;

HttpResponse text_response(int status, std::string body);

struct HttpServerOptions {
  std::string address = "127.0.0.1:9810";  // numeric, see listen_on(); port 0: the kernel chooses
  std::size_t connections_max = 128;
  std::size_t connections_per_client_max = 64;
  std::chrono::seconds idle_timeout{5};
  std::chrono::seconds request_deadline{10};
};

class HttpServer {
 public:
  // `handlers` by path: "/metrics". Other paths answer 404, other methods 405. Errors: see listen_on().
  static base::Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options,
                                                         std::map<std::string, HttpHandler, std::less<>> handlers);
  // Stops listening, closes all connections, joins the thread.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // "127.0.0.1:43210": where it really listens.
  const std::string& address() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace inferwire::prometheus
