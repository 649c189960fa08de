// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/self_check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>

namespace inferwire::daemon {
namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr char kProcessName[16] = "inferwire-check";  // TASK_COMM_LEN: whole

// What the child says: first the ports, before any request; then that it is done.
struct ChildMessage {
  std::uint16_t server_port;
  std::uint16_t client_port;
  std::int32_t error_number;  // 0, or why it gave up
};

constexpr std::string_view kRequest =
    "POST /v1/chat/completions HTTP/1.1\r\nHost: inferwire-self-check\r\nContent-Type: application/json\r\n"
    "Content-Length: 52\r\n\r\n"
    "{\"model\":\"inferwire-self-check\",\"stream\":true,\"n\":1}";
constexpr std::string_view kHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr std::string_view kEvent = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n";
constexpr std::string_view kEnd = "data: [DONE]\n\n";
constexpr std::string_view kLastChunk = "0\r\n\r\n";
static_assert(kRequest.size() - kRequest.find("\r\n\r\n") - 4 == 52, "Content-Length");

// The rest of this namespace runs in the child: no allocation, nothing that another thread could have locked.

bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool receive_all(int socket, std::size_t length) {
  char block[4096];
  while (length > 0) {
    const ssize_t got = recv(socket, block, length < sizeof block ? length : sizeof block, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    length -= static_cast<std::size_t>(got);
  }
  return true;
}

bool pass(int from, int to, std::string_view bytes) { return send_all(from, bytes) && receive_all(to, bytes.size()); }

// One event as one chunk of the body.
bool pass_event(int server, int client, std::string_view event) {
  char chunk[256];
  const int length =
      std::snprintf(chunk, sizeof chunk, "%zx\r\n%.*s\r\n", event.size(), static_cast<int>(event.size()), event.data());
  return length > 0 && pass(server, client, {chunk, static_cast<std::size_t>(length)});
}

bool stream(int to_parent) {
  const base::UniqueFd listener_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const base::UniqueFd client_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int listener = listener_fd.get(), client = client_fd.get();
  // A child whose packets are dropped (no loopback, a firewall) must not wait for ever; accept() and connect() too.
  const timeval patience{1, 0};
  for (const int fd : {listener, client}) {
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }
  sockaddr_in address{};
  socklen_t size = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (listener < 0 || client < 0 || bind(listener, plain, size) != 0 || listen(listener, 1) != 0) return false;
  if (getsockname(listener, plain, &size) != 0) return false;

  // The client's port is known before its SYN leaves, so that no record comes unannounced.
  sockaddr_in own{};
  socklen_t own_size = sizeof own;
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* own_plain = reinterpret_cast<sockaddr*>(&own);
  if (bind(client, own_plain, own_size) != 0 || getsockname(client, own_plain, &own_size) != 0) return false;
  const ChildMessage ports{ntohs(address.sin_port), ntohs(own.sin_port), 0};
  if (write(to_parent, &ports, sizeof ports) != sizeof ports) return false;

  if (connect(client, plain, size) != 0) return false;
  sockaddr_in peer{};
  socklen_t peer_size = sizeof peer;
  const base::UniqueFd server_fd(accept4(listener, reinterpret_cast<sockaddr*>(&peer), &peer_size, SOCK_CLOEXEC));
  const int server = server_fd.get();
  const int one = 1;
  if (server < 0 || setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
      setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
    return false;
  if (!pass(client, server, kRequest) || !pass(server, client, kHead)) return false;
  for (std::uint32_t i = 0; i < SelfCheck::kChunks; ++i) {
    const timespec pause{0, 5'000'000};
    nanosleep(&pause, nullptr);
    if (!pass_event(server, client, kEvent)) return false;
  }
  return pass_event(server, client, kEnd) && pass(server, client, kLastChunk);
}

// The parent's order. Says where the child is or is about to be, so that it can clear up when the parent is killed.
struct Order {
  char root[256];        // folder of the cgroup root
  char cgroup[320];      // the child's own; empty if it has none
  std::uint32_t stream;  // 1: make a stream; 0: the parent is about to make the cgroup
};

// True when the parent asks for a stream; false when it has gone.
bool wait_for_order(int from_parent, Order& order) {
  ssize_t got = 0;
  while ((got = read(from_parent, &order, sizeof order)) < 0 && errno == EINTR) {
  }
  return got == sizeof order;
}

void leave_and_remove(const Order& order) {
  if (order.cgroup[0] == '\0') return;
  char processes[sizeof order.root + 16];
  std::snprintf(processes, sizeof processes, "%s/cgroup.procs", order.root);
  const base::UniqueFd root(open(processes, O_WRONLY | O_CLOEXEC));
  if (root && write(root.get(), "0", 1) == 1) rmdir(order.cgroup);
}

[[noreturn]] void child_main(int from_parent, int to_parent) {
  prctl(PR_SET_NAME, kProcessName);
  std::signal(SIGPIPE, SIG_IGN);
  Order order{};
  while (wait_for_order(from_parent, order)) {
    if (order.stream == 0) continue;
    errno = 0;
    const bool done = stream(to_parent);
    const ChildMessage message{0, 0, done ? 0 : (errno != 0 ? errno : EIO)};
    if (write(to_parent, &message, sizeof message) != sizeof message) break;
  }
  leave_and_remove(order);
  _exit(0);
}

}  // namespace

SelfCheck::SelfCheck() {
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0) return;
  base::UniqueFd child_in(down[0]);
  to_child_.reset(down[1]);
  if (pipe2(up, O_CLOEXEC) != 0) return;
  from_child_.reset(up[0]);
  base::UniqueFd child_out(up[1]);
  fcntl(from_child_.get(), F_SETFL, O_NONBLOCK);

  child_ = fork();
  if (child_ == 0) {
    to_child_.reset();
    from_child_.reset();
    child_main(child_in.get(), child_out.get());
  }
  child_pid_ = child_;
}

SelfCheck::~SelfCheck() { end_child(); }

// The child ends by itself when nobody holds the other end of its pipe: it cannot hang, its sockets have timeouts.
void SelfCheck::end_child() {
  to_child_.reset();
  if (child_ > 0) {
    while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
    child_ = -1;
  }
  if (!cgroup_.empty()) {
    rmdir(cgroup_.c_str());  // if the child could not
    cgroup_.clear();
  }
}

void SelfCheck::fail(std::string why) {
  state_ = State::kFailed;
  reason_ = std::move(why);
}

void SelfCheck::skip() {
  state_ = State::kSkipped;
  reason_ = "switched off by configuration";
  end_child();
}

// Where it cannot be done, reason_ says in what way the proof is weaker.
void SelfCheck::enter_cgroup(const std::string& cgroup_root) {
  constexpr char kWeaker[] = "the stream came from the agent's own cgroup: ";
  reason_.clear();
  if (!cgroup_.empty()) return;  // from an earlier try
  const std::string cgroup = cgroup_root + "/inferwire-self-check-" + std::to_string(getpid());
  send_order(cgroup_root, cgroup, false);
  if (mkdir(cgroup.c_str(), 0755) != 0 && errno != EEXIST) {
    reason_ = kWeaker + ("cannot make " + cgroup + ": " + base::errno_text(errno));
    return;
  }
  cgroup_ = cgroup;
  const base::UniqueFd processes(open((cgroup + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  const std::string pid = std::to_string(child_);
  if (!processes || write(processes.get(), pid.data(), pid.size()) != static_cast<ssize_t>(pid.size())) {
    reason_ = kWeaker + ("cannot move a process to " + cgroup + ": " + base::errno_text(errno));
    rmdir(cgroup_.c_str());
    cgroup_.clear();
    return;
  }
  struct stat status {};
  if (stat(cgroup.c_str(), &status) == 0) cgroup_id_ = status.st_ino;
}

bool SelfCheck::send_order(const std::string& cgroup_root, const std::string& cgroup, bool stream) const {
  Order order{};
  std::snprintf(order.root, sizeof order.root, "%s", cgroup_root.c_str());
  std::snprintf(order.cgroup, sizeof order.cgroup, "%s", cgroup.c_str());
  order.stream = stream ? 1 : 0;
  return write(to_child_.get(), &order, sizeof order) == sizeof order;
}

void SelfCheck::start(const std::string& cgroup_root, Time now) {
  if (child_ <= 0) return fail("cannot start the self-check's process");
  enter_cgroup(cgroup_root);
  ChildMessage stale{};
  while (read(from_child_.get(), &stale, sizeof stale) > 0) {
  }
  server_port_ = client_port_ = 0;
  child_done_ = saw_server_ = saw_client_ = false;
  if (!send_order(cgroup_root, cgroup_, true)) return fail("the self-check's process has ended");
  state_ = State::kRunning;
  deadline_ = now + kPatience;
}

void SelfCheck::poll(Time now) {
  if (state_ != State::kRunning) return;
  ChildMessage message{};
  if (read(from_child_.get(), &message, sizeof message) == sizeof message) {
    if (message.error_number != 0) {
      return fail("the self-check's own connection over loopback failed: " + base::errno_text(message.error_number));
    }
    if (message.server_port != 0) {
      server_port_ = message.server_port;
      client_port_ = message.client_port;
    } else {
      child_done_ = true;
    }
  }
  if (child_done_ && saw_server_ && saw_client_) {
    state_ = State::kPassed;
    end_child();
    return;
  }
  if (now < deadline_) return;
  std::string missing;
  if (!child_done_)
    missing = "its connection over loopback did not get through";
  else if (!saw_server_ && !saw_client_)
    missing = "it was not seen at all";
  else
    missing = std::string("it was not seen as ") + (saw_server_ ? "client" : "server");
  fail("a stream was made " + std::string(cgroup_id_ != 0 ? "from another cgroup" : "over loopback") + ", and " +
       missing + " within 5 s");
}

bool SelfCheck::takes(const iw_record& record, bool final) {
  const iw_conn& conn = record.conn;
  bool ours = conn.cookie != 0 && (conn.cookie == cookies_[0] || conn.cookie == cookies_[1]);
  if (state_ == State::kRunning && !ours && server_port_ != 0) {
    const bool server = conn.local_port == server_port_ && conn.remote_port == client_port_;
    const bool client = conn.local_port == client_port_ && conn.remote_port == server_port_;
    ours = server || client;
    if (ours) cookies_[client] = conn.cookie;
  }
  if (!ours) return std::strncmp(conn.comm, kProcessName, sizeof conn.comm) == 0;  // of another agent
  if (!final || state_ != State::kRunning) return true;

  const iw_request& request = record.request;
  if (request.chunks != kChunks || request.code != 200 || request.outcome != IW_OUTCOME_COMPLETE ||
      request.stream != 1) {
    fail("a stream of " + std::to_string(kChunks) + " chunks with code 200 came back as " +
         std::to_string(request.chunks) + " chunks with code " + std::to_string(request.code) + ", outcome " +
         std::to_string(request.outcome));
    return true;
  }
  saw_server_ |= conn.role == IW_ROLE_SERVER;
  saw_client_ |= conn.role == IW_ROLE_CLIENT;
  return true;
}

// A delivery names its connection only by cookie, which is known from the first chunk's partial record on.
bool SelfCheck::takes(const iw_delivery& delivery) const {
  return delivery.cookie != 0 && (delivery.cookie == cookies_[0] || delivery.cookie == cookies_[1]);
}

bool SelfCheck::takes(const iw_count_key& key) const { return takes(key.cgroup_id, key.pid, {}); }

bool SelfCheck::takes(std::uint64_t cgroup_id, std::uint32_t pid, std::string_view comm) const {
  return (child_pid_ > 0 && pid == static_cast<std::uint32_t>(child_pid_)) ||
         (cgroup_id_ != 0 && cgroup_id == cgroup_id_) || comm == kProcessName;
}

}  // namespace inferwire::daemon
