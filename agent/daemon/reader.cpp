// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/reader.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "agent/base/file.h"
#include "agent/base/log.h"
#include "agent/capture/environment.h"
#include "agent/daemon/process_metrics.h"
#include "agent/model/json.h"

namespace inferwire::daemon {
namespace {

using metrics::FamilyId;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPublishEvery{1};
constexpr seconds kMapsEvery{10};
constexpr milliseconds kCheckEvery{10};
constexpr seconds kRetryCheckAfter{10};

constexpr std::array<std::string_view, 4> kModes = {"starting", "full", "degraded", "blind"};

std::int64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Counters of the kernel programs that are no events, as `status` calls them.
constexpr std::pair<std::size_t, std::string_view> kPacketPathCounts[] = {
    {IW_STAT_REQUESTS_FINISHED, "requests_finished"}, {IW_STAT_CHUNKS, "chunks"}, {IW_STAT_DELIVERIES, "deliveries"}};

template <class Record>
Record read_as(std::span<const std::byte> bytes) {
  Record record;
  std::memcpy(&record, bytes.data(), sizeof record);
  return record;
}

template <std::size_t N>
std::string_view name_in(const char (&field)[N]) {
  return {field, strnlen(field, N)};
}

std::uint64_t monotonic_ns() { return static_cast<std::uint64_t>(clock_ns(CLOCK_MONOTONIC)); }

std::chrono::steady_clock::time_point now_steady() { return std::chrono::steady_clock::now(); }

model::Settings settings_of(const Config& config, const metrics::Registry& registry) {
  model::Settings settings;
  settings.gap_edges_ns = metrics::edges_in_ns(registry.edges(metrics::EdgesId::kGaps));
  settings.configured_routes = config.routes;
  return settings;
}

// The id of this process's own cgroup, 0 if it cannot be told.
std::uint64_t own_cgroup_id(const std::string& cgroup_root) {
  auto text = base::read_text("/proc/self/cgroup");
  const std::size_t at = text ? text->find("0::") : std::string::npos;
  if (at == std::string::npos) return 0;
  const std::string path = text->substr(at + 3, text->find('\n', at) - at - 3);
  struct stat status {};
  return path.size() > 1 && stat((cgroup_root + path).c_str(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

Reader::Reader(Parts parts)
    : parts_(std::move(parts)),
      settings_(settings_of(parts_.config, *parts_.registry)),
      tracker_(*parts_.registry, {.settings = settings_, .known_ports = parts_.config.ports}),
      tcp_(*parts_.registry, {.peers = parts_.config.peers, .reset_reasons = capture::reset_reasons()}),
      identities_({.cgroup_root = parts_.cgroup_root,
                   .host_root = parts_.config.host_root,
                   .node = parts_.node,
                   .logs = parts_.config.pod_logs,
                   .pod_watch = parts_.pod_watch}) {}

Reader::~Reader() = default;

void Reader::begin() {
  const Time now = now_steady();
  started_ = next_drain_ = next_read_open_ = next_publish_ = next_maps_ = next_check_ = now;
  own_cgroup_id_ = own_cgroup_id(parts_.cgroup_root);
  if (const auto address = parse_listen(parts_.listen_address)) own_port_ = address->port;
  for (const capture::SignalState& signal : capture::signal_states(parts_.source->states())) {
    if (signal.signal == "open_requests") sees_open_requests_ = signal.up;
    if (!signal.up) base::log_warn("signal " + std::string(signal.signal) + " is down: " + signal.reason);
  }
  if (parts_.config.self_check) {
    parts_.readiness->set_ready(false, "the self-check is running");
    parts_.self_check->start(parts_.cgroup_root, now);
  } else {
    parts_.self_check->skip();
  }
}

base::Result<void> Reader::run(int stop_fd) {
  begin();
  std::vector<pollfd> fds;
  for (;;) {
    fds.clear();
    fds.push_back({stop_fd, POLLIN, 0});
    if (parts_.control) parts_.control->wait_for(fds);
    // Rounded up: a loop that wakes a little early would turn twice.
    const auto wait = std::chrono::ceil<milliseconds>(next_deadline() - now_steady());
    if (poll(fds.data(), fds.size(), static_cast<int>(std::max<std::int64_t>(0, wait.count()))) < 0 && errno != EINTR) {
      return base::fail("wait for records", "", base::errno_text(errno), "");
    }
    const Time now = now_steady();
    parts_.readiness->beat(now);
    if ((fds[0].revents & POLLIN) != 0) return finish();
    if (auto turned = turn(now); !turned) return turned;
    if (parts_.control) parts_.control->serve([this](std::string_view request) { return answer(request); }, now);
  }
}

Reader::Time Reader::next_deadline() const {
  Time next = std::min({next_drain_, next_read_open_, next_publish_});
  if (!parts_.self_check->ended() || parts_.self_check->state() == SelfCheck::State::kFailed) {
    next = std::min(next, next_check_);
  }
  return next;
}

base::Result<void> Reader::turn(Time now) {
  const bool checking = parts_.self_check->state() == SelfCheck::State::kRunning;
  if (now >= next_drain_ || (checking && now >= next_check_)) {
    if (auto done = drain(now); !done) return done;
    next_drain_ = now + parts_.config.drain_interval;
  }
  if (now >= next_check_ || parts_.self_check->state() != last_check_) advance_self_check(now);
  if (now >= next_read_open_) {
    if (auto done = read_open(now); !done) return done;
    next_read_open_ = now + parts_.config.partial_interval;
  }
  if (now >= next_publish_) {
    if (auto done = publish(now); !done) return done;
    next_publish_ = now + kPublishEvery;
  }
  return {};
}

void Reader::advance_self_check(Time now) {
  SelfCheck& check = *parts_.self_check;
  next_check_ = now + kCheckEvery;
  const bool changed = check.state() != last_check_;
  last_check_ = check.state();
  switch (check.state()) {
    case SelfCheck::State::kPassed:
    case SelfCheck::State::kSkipped:
      if (!changed) return;
      if (!check.reason().empty()) base::log_warn("self-check: " + check.reason());
      parts_.readiness->set_ready(true, "");
      next_publish_ = now;
      std::fputs("ready\n", stderr);
      return;
    case SelfCheck::State::kFailed:
      if (changed) {
        base::log_error("self-check failed, trying again every 10 s: " + check.reason());
        parts_.readiness->set_ready(false, "self-check failed: " + check.reason());
        next_check_ = now + kRetryCheckAfter;
        return;
      }
      check.start(parts_.cgroup_root, now);
      return;
    default:
      return;
  }
}

base::Result<void> Reader::drain(Time now) {
  identities_.refresh(now);
  parts_.self_check->poll(now);  // its ports were told before its first packet: they are known before its first record
  clock_.mono_to_unix_offset_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
  if (!finishing_) {
    auto followed = parts_.source->follow(now, parts_.config.idle_detach);
    if (!followed) base::log_once(base::LogLevel::kWarn, "follow", followed.error().to_string());
  }
  return parts_.source->drain(
      [&](const iw_header& header, std::span<const std::byte> bytes) { on_record(header, bytes, now); });
}

void Reader::on_record(const iw_header& header, std::span<const std::byte> bytes, Time now) {
  if (header.kind == IW_REC_SOCKET) {  // a new owner: its names are looked up while it is there
    const auto owner = read_as<iw_socket_state>(bytes);
    identities_.of_process(owner.cgroup_id, owner.pid, name_in(owner.comm), now);
    return;
  }
  ++delivered_[header.kind];
  switch (header.kind) {
    case IW_REC_DELIVERY:
      return on_delivery(read_as<iw_delivery>(bytes));
    case IW_REC_RESET:
      return on_reset(read_as<iw_reset>(bytes), now);
    case IW_REC_LISTEN_DROP:
      return on_listener(read_as<iw_listener>(bytes), now);
    default:
      return on_request(read_as<iw_record>(bytes), now);
  }
}

void Reader::write_record(std::string line, std::uint32_t kind) {
  if (parts_.records && !line.empty()) parts_.records->write(std::move(line), kind);
}

void Reader::on_request(const iw_record& record, Time now) {
  const bool final = record.header.kind == IW_REC_FINAL;
  if (parts_.self_check->takes(record, final)) {
    ++excluded_[record.header.kind];
    return;
  }
  const model::Identity identity = identities_.of_connection(record.conn, now);
  if (identity.pid != 0 && living_.size() < kLivingMax) living_.insert_or_assign(identity.pid, identity);
  model::Recorded recorded = tracker_.on_record(record, final, monotonic_ns(), identity, clock_);
  note_llm(recorded.request, identity);
  if (final) write_record(std::move(recorded.line), IW_REC_FINAL);
}

void Reader::note_llm(const model::Request& request, const model::Identity& who) {
  if (request.route == IW_ROUTE_OTHER) return;
  tcp_.saw_llm(who, request.role, request.role == IW_ROLE_CLIENT ? request.remote_port : request.local_port);
}

void Reader::on_reset(const iw_reset& reset, Time now) {
  if (parts_.self_check->takes(reset.cgroup_id, reset.pid, name_in(reset.comm))) {
    ++excluded_[IW_REC_RESET];
    return;
  }
  const model::Identity who = identities_.of_process(reset.cgroup_id, reset.pid, name_in(reset.comm), now);
  write_record(tcp_.on_reset(reset, who, clock_), IW_REC_RESET);
}

// From the ring buffer, when it dropped something, and from the walk.
void Reader::on_listener(const iw_listener& listener, Time now) {
  if (parts_.self_check->takes(listener.cgroup_id, listener.pid, name_in(listener.comm))) {
    if (listener.header.kind == IW_REC_LISTEN_DROP) ++excluded_[IW_REC_LISTEN_DROP];
    return;
  }
  const model::Identity who = identities_.of_process(listener.cgroup_id, listener.pid, name_in(listener.comm), now);
  tracker_.touch(who, monotonic_ns());
  write_record(tcp_.on_listener(listener, who, clock_), IW_REC_LISTEN_DROP);
}

void Reader::on_socket(const iw_socket_state& socket, Time now) {
  if (parts_.self_check->takes(socket.cgroup_id, socket.pid, name_in(socket.comm))) return;
  const model::Identity who = identities_.of_process(socket.cgroup_id, socket.pid, name_in(socket.comm), now);
  tracker_.touch(who, monotonic_ns());
  tcp_.on_socket(socket, who);
}

void Reader::on_walked(const iw_header& header, std::span<const std::byte> bytes, Time now) {
  switch (header.kind) {
    case IW_REC_LISTENER:
      return on_listener(read_as<iw_listener>(bytes), now);
    case IW_REC_SOCKET:
      return on_socket(read_as<iw_socket_state>(bytes), now);
    default:
      return on_connection(read_as<iw_record>(bytes), now);
  }
}

// From the walk over connections.
void Reader::on_connection(const iw_record& record, Time now) {
  if (parts_.self_check->takes(record, false)) return;
  const model::Identity identity = identities_.of_connection(record.conn, now);
  tracker_.on_connection(record.conn, identity);
  tracker_.touch(identity, monotonic_ns());
  if (record.header.kind != IW_REC_PARTIAL) return;
  const model::Recorded recorded = tracker_.on_record(record, false, monotonic_ns(), identity, clock_);
  note_llm(recorded.request, identity);
  // What an open stream had come to when the agent stopped.
  if (finishing_) write_record(model::to_json_line(recorded.request, identity), IW_REC_PARTIAL);
}

void Reader::on_delivery(const iw_delivery& delivery) {
  if (parts_.self_check->takes(delivery)) {
    ++excluded_[IW_REC_DELIVERY];
    return;
  }
  if (!parts_.delivery_trace) return;
  char line[192];
  const int length = std::snprintf(
      line, sizeof line,
      R"({"type":"delivery","t_mono_ns":%llu,"conn_id":"%016llx","ordinal":%u,"role":"%s","view":"%s","chunks":%u})",
      static_cast<unsigned long long>(delivery.header.time_ns), static_cast<unsigned long long>(delivery.cookie),
      delivery.ordinal, delivery.role == IW_ROLE_SERVER ? "server" : "client",
      delivery.view == IW_VIEW_SENT ? "sent" : "delivered", delivery.chunks);
  parts_.delivery_trace->write(std::string(line, static_cast<std::size_t>(length)));
}

// Requests for our own /metrics, from either end: they would count the observer.
bool Reader::is_own_scrape(const iw_count_key& key) const {
  if (key.port != own_port_ || key.route != IW_ROUTE_OTHER) return false;
  if (key.role == IW_ROLE_CLIENT) return true;
  return key.pid == static_cast<std::uint32_t>(getpid()) || key.pid == 0 || key.cgroup_id == own_cgroup_id_;
}

// A workload whose process lives keeps its series, however long it is idle.
void Reader::touch_living() {
  for (auto at = living_.begin(); at != living_.end();) {
    if (kill(static_cast<pid_t>(at->first), 0) != 0 && errno == ESRCH) {
      at = living_.erase(at);
      continue;
    }
    tracker_.touch(at->second, monotonic_ns());
    ++at;
  }
}

base::Result<void> Reader::read_open(Time now) {
  if (auto done = drain(now); !done) return done;  // first: what is open now is newer
  auto walked = parts_.source->read_open(
      [&](const iw_header& header, std::span<const std::byte> bytes) { on_walked(header, bytes, now); });
  if (!walked) return walked;
  read_sums(now);
  touch_living();
  // Without the iterator nothing would be reported, and all be forgotten.
  if (sees_open_requests_) {
    tracker_.end_iteration(monotonic_ns());
  } else {
    tracker_.flush_counts();
    if (!finishing_) return {};
  }
  for (std::string& line : tcp_.end_walk(monotonic_ns(), clock_, finishing_)) {
    write_record(std::move(line), IW_REC_LISTEN_DROP);
  }
  return {};
}

// After the walk: what it has seen of LLM requests decides how TCP's sums are shown.
void Reader::read_sums(Time now) {
  const auto counted = parts_.source->read_counts([&](const iw_count_key& key, const iw_count& delta) {
    if (is_own_scrape(key) || parts_.self_check->takes(key)) return;
    const model::Identity who = identities_.of_count(key, delta, now);
    if (key.route != IW_ROUTE_OTHER) tcp_.saw_llm(who, key.role, key.port);
    tracker_.on_count(key, delta, who);
  });
  if (!counted) base::log_once(base::LogLevel::kWarn, "counts", counted.error().to_string());
  const auto summed = parts_.source->read_tcp([&](const iw_tcp_key& key, const iw_tcp_sums& delta) {
    const std::string_view comm = name_in(delta.comm);
    if (parts_.self_check->takes(key.cgroup_id, key.pid, comm)) return;
    tcp_.on_sums(key, delta, identities_.of_process(key.cgroup_id, key.pid, comm, now));
  });
  if (!summed) base::log_once(base::LogLevel::kWarn, "tcp", summed.error().to_string());
}

// Each record that the kernel has made is exported or lost. Seen is what has come plus what was lost, so that the sum
// is right at every moment, not only when the ring buffer happens to be empty; status_json() compares with the kernel.
void Reader::report_records(capture::KernelStats stats) {
  for (std::size_t kind = IW_REC_FINAL; kind < IW_REC_KINDS; ++kind) {
    stats[IW_STAT_RECORDS_SEEN + kind] = delivered_[kind] - excluded_[kind] + stats[IW_STAT_RECORDS_LOST + kind];
  }
  tracker_.on_stats(stats);
  if (parts_.records) {
    for (std::size_t kind = IW_REC_FINAL; kind < IW_REC_KINDS; ++kind) {
      if (kind == IW_REC_DELIVERY) continue;
      parts_.registry->set(FamilyId::kRecordsLostTotal, {model::record_kind_name(kind), "jsonl"},
                           static_cast<double>(parts_.records->lost(kind)));
    }
  }
  if (parts_.delivery_trace) {
    parts_.registry->set(FamilyId::kRecordsLostTotal, {"delivery", "jsonl"},
                         static_cast<double>(parts_.delivery_trace->lost()));
  }
}

void Reader::report_signals() {
  metrics::Registry& registry = *parts_.registry;
  registry.clear(FamilyId::kSignalUp);  // a reason that no longer holds must not stay
  bool all_up = true;
  for (const capture::SignalState& signal : capture::signal_states(parts_.source->states())) {
    all_up &= signal.up;
    registry.set(FamilyId::kSignalUp, {signal.signal, signal.reason}, signal.up ? 1 : 0);
  }
  const auto report = [&](std::string_view signal, const std::string& problem) {
    all_up &= problem.empty();
    registry.set(FamilyId::kSignalUp, {signal, problem}, problem.empty() ? 1 : 0);
  };
  if (identities_.met_pods()) report("pod_names", identities_.pods_problem());
  if (parts_.pod_watch != nullptr) report("pod_watch", parts_.pod_watch->problem());
  const SelfCheck& check = *parts_.self_check;
  const bool passed = check.state() == SelfCheck::State::kPassed;
  // Of a passed one the reason says how the proof could be stronger: `status` has it.
  if (check.ended()) registry.set(FamilyId::kSignalUp, {"self_check", passed ? "" : check.reason()}, passed ? 1 : 0);

  std::string_view mode = all_up ? "full" : "degraded";
  if (check.state() == SelfCheck::State::kFailed) mode = "blind";
  if (!check.ended()) mode = "starting";
  for (std::string_view name : kModes) registry.set(FamilyId::kMode, {name}, name == mode ? 1 : 0);

  for (std::size_t i = 0; i < capture::kHooks.size(); ++i) {
    if (!parts_.source->states()[i].chosen) continue;
    registry.set(FamilyId::kHookInfo, {capture::kHooks[i].hook, capture::kHooks[i].rung}, 1);
  }
}

void Reader::report_maps() {
  metrics::Registry& registry = *parts_.registry;
  double memory_bytes = 0;
  for (const capture::MapUse& use : maps_) {
    memory_bytes += static_cast<double>(use.memory_bytes);
    if (use.entries) registry.set(FamilyId::kMapEntries, {use.map}, static_cast<double>(*use.entries));
  }
  registry.set(FamilyId::kMapMemoryBytes, {}, memory_bytes);
  registry.set(FamilyId::kMapEvictionsTotal, {"counts"}, static_cast<double>(stats_[IW_STAT_COUNTS_FULL]));
  registry.set(FamilyId::kMapEvictionsTotal, {"tcp"}, static_cast<double>(stats_[IW_STAT_SUMS_FULL]));
  registry.set(FamilyId::kMapEvictionsTotal, {"flows"}, static_cast<double>(stats_[IW_STAT_STORAGE_FAILED]));
  registry.set(FamilyId::kMapEvictionsTotal, {"slots"}, static_cast<double>(stats_[IW_STAT_NO_SLOT]));
  for (const capture::ProgramRun& run : parts_.source->program_runs()) {
    registry.set(FamilyId::kBpfRunSecondsTotal, {run.program}, static_cast<double>(run.run_ns) / 1e9);
  }
}

base::Result<void> Reader::publish(Time now) {
  auto stats = parts_.source->read_stats();
  if (!stats) return tl::unexpected(stats.error());
  stats_ = *stats;
  if (auto done = drain(now); !done) return done;
  if (now >= next_maps_) {
    maps_ = parts_.source->map_use();
    next_maps_ = now + kMapsEvery;
  }
  report_records(stats_);
  report_signals();
  report_maps();
  report_process(*parts_.registry);
  parts_.exporter->report_scrapes(*parts_.registry);
  tracker_.tick(monotonic_ns());
  parts_.registry->retire(base::monotonic_from_ns(monotonic_ns()));
  parts_.exporter->publish(parts_.registry->snapshot());
  return {};
}

base::Result<void> Reader::finish() {
  const Time now = now_steady();
  parts_.readiness->set_ready(false, "stopping");
  parts_.source->stop();
  finishing_ = true;
  if (auto done = read_open(now); !done) return done;
  tracker_.flush_counts();
  constexpr milliseconds kPatience{1500};
  if (parts_.records) parts_.records->stop(kPatience);
  if (parts_.delivery_trace) parts_.delivery_trace->stop(kPatience);
  return publish(now);
}

void Reader::reopen_files() {
  if (parts_.records) parts_.records->reopen();
  if (parts_.delivery_trace) parts_.delivery_trace->reopen();
}

std::string Reader::answer(std::string_view request) {
  const Time now = now_steady();
  if (request == "top") {
    if (auto done = read_open(now); !done) return nlohmann::json{{"error", done.error().to_string()}}.dump();
    next_read_open_ = now + parts_.config.partial_interval;
    return tracker_.top_json(monotonic_ns(), &tcp_);
  }
  if (request == "status") return status_json();
  return R"({"error": "unknown request; known: top, status"})";
}

std::string Reader::status_json() {
  const SelfCheck& check = *parts_.self_check;
  nlohmann::ordered_json status;
  status["type"] = "status";
  status["v"] = 1;
  status["version"] = INFERWIRE_VERSION;
  status["pid"] = getpid();
  status["node"] = parts_.node;
  status["listen"] = parts_.listen_address;
  status["cgroup_root"] = parts_.cgroup_root;
  status["uptime_seconds"] = std::chrono::duration<double>(now_steady() - started_).count();
  const std::string not_ready = parts_.readiness->reason();
  status["ready"] = not_ready.empty();
  if (!not_ready.empty()) status["reason"] = not_ready;
  if (!check.reason().empty()) status["self_check"] = check.reason();

  for (std::size_t i = 0; i < capture::kHooks.size(); ++i) {
    const capture::HookState& state = parts_.source->states()[i];
    nlohmann::ordered_json hook{
        {"hook", capture::kHooks[i].hook}, {"rung", capture::kHooks[i].rung}, {"used", state.chosen}};
    if (!state.unusable.empty()) hook["reason"] = state.unusable;
    status["hooks"].push_back(std::move(hook));
  }

  if (auto stats = parts_.source->read_stats()) stats_ = *stats;
  for (std::size_t kind = IW_REC_FINAL; kind < IW_REC_KINDS; ++kind) {
    const std::uint64_t seen = stats_[IW_STAT_RECORDS_SEEN + kind], lost = stats_[IW_STAT_RECORDS_LOST + kind];
    status["records"][std::string(model::record_kind_name(kind))] = {{"seen_by_kernel", seen},
                                                                     {"lost_in_ring_buffer", lost},
                                                                     {"delivered", delivered_[kind]},
                                                                     {"waiting", seen - lost - delivered_[kind]},
                                                                     {"self_check", excluded_[kind]}};
  }
  status["records"]["malformed"] = parts_.source->malformed_records();
  if (parts_.records) status["records"]["lost_in_jsonl"] = parts_.records->lost();
  for (const auto& [stat, name] : kPacketPathCounts) status["packet_path"][std::string(name)] = stats_[stat];
  for (std::size_t stat = 0; stat < stats_.size(); ++stat) {
    const std::string_view event = model::packet_path_event_name(stat);
    if (!event.empty()) status["packet_path"][std::string(event)] = stats_[stat];
  }
  for (const capture::MapUse& use : maps_) {
    status["maps"][use.map]["memory_bytes"] = use.memory_bytes;
    if (use.entries) status["maps"][use.map]["entries"] = *use.entries;
  }
  const model::TrackerStatus tracked = tracker_.status();
  status["requests"] = {{"open", tracked.open_requests},        {"open_streams", tracked.open_streams},
                        {"finished", tracked.finished_total},   {"forgotten", tracked.forgotten_total},
                        {"stale_records", tracked.stale_total}, {"unfollowed", tracked.unfollowed_total}};
  status["tcp"] = {{"listeners", tcp_.listeners()}, {"sockets", tcp_.connections()}};
  return status.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace inferwire::daemon
