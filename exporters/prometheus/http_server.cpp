// SPDX-License-Identifier: Apache-2.0
#include "exporters/prometheus/http_server.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <list>
#include <utility>

#include "agent/base/log.h"
#include "exporters/prometheus/listen_address.h"

namespace inferwire::prometheus {
namespace {

using Clock = std::chrono::steady_clock;

// What libmicrohttpd may use for one connection: request line and headers. Bodies of responses are not in it.
constexpr std::size_t kConnectionMemoryBytes = 16 * 1024;

// IPv4 as v4-mapped IPv6, so that [::] counts a client once.
using ClientAddress = std::array<unsigned char, 16>;

ClientAddress client_address(const sockaddr* address) {
  ClientAddress client{};
  if (address == nullptr) return client;
  if (address->sa_family == AF_INET) {
    client[10] = client[11] = 0xFF;
    std::memcpy(client.data() + 12, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
  } else if (address->sa_family == AF_INET6) {
    std::memcpy(client.data(), &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
  }
  return client;
}

struct Connection {
  int fd = -1;
  ClientAddress client{};
  Clock::time_point waiting_since;  // connected, or previous request answered
  bool closing = false;             // shut down by us; libmicrohttpd closes it next
};

void log_library_line(void*, const char* format, va_list arguments) {
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  base::log_debug(line);
}

void free_body(void* shared_body) { delete static_cast<std::shared_ptr<const std::string>*>(shared_body); }

struct ResponseDeleter {
  void operator()(MHD_Response* response) const { MHD_destroy_response(response); }
};
using UniqueResponse = std::unique_ptr<MHD_Response, ResponseDeleter>;

UniqueResponse make_response(const HttpResponse& answer) {
  static const auto kNoBody = std::make_shared<const std::string>();
  auto body = std::make_unique<std::shared_ptr<const std::string>>(answer.body ? answer.body : kNoBody);
  const std::string& text = **body;
  UniqueResponse response(MHD_create_response_from_buffer_with_free_callback_cls(
      text.size(), const_cast<char*>(text.data()), free_body, body.get()));
  if (!response) return nullptr;
  body.release();  // free_body's now
  MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CONTENT_TYPE, answer.content_type.c_str());
  return response;
}

}  // namespace

// All callbacks run on libmicrohttpd's one thread, so nothing here is locked.
struct HttpServer::Impl {
  HttpServerOptions options;
  std::map<std::string, HttpHandler, std::less<>> handlers;
  std::string address;
  std::list<Connection> connections;  // oldest first
  MHD_Daemon* daemon = nullptr;

  ~Impl() {
    if (daemon != nullptr) MHD_stop_daemon(daemon);
  }

  HttpResponse answer(std::string_view path) const {
    const auto handler = handlers.find(path);
    if (handler == handlers.end()) return text_response(404, "not found\n");
    return handler->second();
  }

  // The reader gets an end of file, so that libmicrohttpd closes the connection in its next round.
  static void shut(Connection& connection) {
    connection.closing = true;
    ::shutdown(connection.fd, SHUT_RDWR);
  }

  // Called before a connection from `client` is accepted.
  void make_room_for(const ClientAddress& client) {
    const auto now = Clock::now();
    std::size_t open = 0;
    std::size_t open_of_client = 0;
    Connection* oldest = nullptr;
    Connection* oldest_of_client = nullptr;
    for (Connection& connection : connections) {
      if (connection.closing) continue;
      if (now - connection.waiting_since > options.request_deadline) {
        shut(connection);
        continue;
      }
      ++open;
      if (oldest == nullptr) oldest = &connection;
      if (connection.client != client) continue;
      ++open_of_client;
      if (oldest_of_client == nullptr) oldest_of_client = &connection;
    }
    if (open_of_client >= options.connections_per_client_max) {
      shut(*oldest_of_client);
    } else if (open >= options.connections_max) {
      shut(*oldest);
    }
  }

  static MHD_Result on_accept(void* self, const sockaddr* address, socklen_t) {
    static_cast<Impl*>(self)->make_room_for(client_address(address));
    return MHD_YES;
  }

  static void on_connection(void* self, MHD_Connection* mhd_connection, void** context,
                            MHD_ConnectionNotificationCode code) {
    auto& connections = static_cast<Impl*>(self)->connections;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      const auto* fd = MHD_get_connection_info(mhd_connection, MHD_CONNECTION_INFO_CONNECTION_FD);
      const auto* peer = MHD_get_connection_info(mhd_connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
      if (fd == nullptr) return;
      Connection& connection = connections.emplace_back();
      connection.fd = fd->connect_fd;
      connection.client = client_address(peer == nullptr ? nullptr : peer->client_addr);
      connection.waiting_since = Clock::now();
      *context = &connection;
    } else if (*context != nullptr) {
      connections.remove_if([&](const Connection& connection) { return &connection == *context; });
      *context = nullptr;
    }
  }

  static void on_answered(void* self, MHD_Connection* mhd_connection, void**, MHD_RequestTerminationCode) {
    auto& connections = static_cast<Impl*>(self)->connections;
    const auto* context = MHD_get_connection_info(mhd_connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (context == nullptr || context->socket_context == nullptr) return;
    for (auto at = connections.begin(); at != connections.end(); ++at) {
      if (&*at != context->socket_context) continue;
      at->waiting_since = Clock::now();
      connections.splice(connections.end(), connections, at);  // the youngest again
      return;
    }
  }

  static MHD_Result on_request(void* self, MHD_Connection* connection, const char* path, const char* method,
                               const char*, const char*, std::size_t* upload_bytes, void** request_context) {
    // libmicrohttpd calls once when the head has come, then for each piece of a body, then to get an answer.
    static int head_has_come;
    if (*request_context == nullptr) {
      *request_context = &head_has_come;
      return MHD_YES;
    }
    if (*upload_bytes != 0) {
      *upload_bytes = 0;
      return MHD_YES;
    }
    const std::string_view method_name(method);
    const bool reading = method_name == MHD_HTTP_METHOD_GET || method_name == MHD_HTTP_METHOD_HEAD;
    const HttpResponse answer =
        reading ? static_cast<Impl*>(self)->answer(path) : text_response(405, "only GET and HEAD\n");
    const UniqueResponse response = make_response(answer);
    if (!response) return MHD_NO;
    if (!reading) MHD_add_response_header(response.get(), MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    return MHD_queue_response(connection, static_cast<unsigned>(answer.status), response.get());
  }

  bool start(Listener listener) {
    address = listener.address;
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_USE_ERROR_LOG;
    if (listener.ipv6) flags |= MHD_USE_IPv6;
    // Twice our own limit: connections that we have shut down still count there until its next round.
    const auto library_limit = static_cast<unsigned>(options.connections_max * 2);
    daemon = MHD_start_daemon(flags, 0, &Impl::on_accept, this, &Impl::on_request, this,  //
                              MHD_OPTION_EXTERNAL_LOGGER, &log_library_line, nullptr,     //
                              MHD_OPTION_LISTEN_SOCKET, listener.socket.get(),            //
                              MHD_OPTION_CONNECTION_LIMIT, library_limit,                 //
                              MHD_OPTION_CONNECTION_TIMEOUT, static_cast<unsigned>(options.idle_timeout.count()),
                              MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionMemoryBytes,  //
                              MHD_OPTION_NOTIFY_CONNECTION, &Impl::on_connection, this,    //
                              MHD_OPTION_NOTIFY_COMPLETED, &Impl::on_answered, this,       //
                              MHD_OPTION_END);
    if (daemon == nullptr) return false;
    (void)listener.socket.release();  // closed by MHD_stop_daemon
    return true;
  }
};

HttpResponse text_response(int status, std::string body) {
  return {status, std::make_shared<const std::string>(std::move(body))};
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() = default;

const std::string& HttpServer::address() const { return impl_->address; }

base::Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options,
                                                            std::map<std::string, HttpHandler, std::less<>> handlers) {
  auto listener = listen_on(options.address);
  if (!listener) return tl::unexpected(listener.error());
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  impl->handlers = std::move(handlers);
  if (!impl->start(std::move(*listener))) {
    return base::fail("serve HTTP on", impl->address, "the HTTP library could not start (threads or descriptors?)",
                      "look at `ulimit -n` and `ulimit -u`; --log-level debug says more");
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

}  // namespace inferwire::prometheus
