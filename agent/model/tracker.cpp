// SPDX-License-Identifier: Apache-2.0
#include "agent/model/tracker.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "agent/base/result.h"
#include "agent/base/units.h"
#include "agent/model/json.h"

namespace inferwire::model {
namespace {

using metrics::FamilyId;

constexpr std::size_t kForgottenMax = 1024;
constexpr std::size_t kFinishedKeysMax = 16'384;
// Lost finals' counts wait this many iterations longer than it takes to forget their open requests.
constexpr std::uint64_t kHeldExtraIterations = 1;

// What people run LLM servers and gateways on.
constexpr std::uint16_t kUsualPorts[] = {3000, 4000, 5000, 8000, 8001,  8002,  8080,
                                         8081, 8443, 8888, 9000, 11434, 23333, 30000};

constexpr std::string_view kProtocol = "http1";

double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

// Labels for more than one call: metrics::Labels only borrows.
template <class... Values>
std::array<std::string_view, sizeof...(Values)> label_values(const Values&... values) {
  return {std::string_view(values)...};
}
template <std::size_t N>
metrics::Labels borrow(const std::array<std::string_view, N>& values) {
  return metrics::Labels(std::span<const std::string_view>(values));
}

// Adds to `counted` what `now` has more, and returns it.
template <class Number>
Number take_new(Number now, Number& counted) {
  if (now <= counted) return 0;
  return now - std::exchange(counted, now);
}

bool is_success(std::uint16_t code) { return code >= 200 && code < 300; }

// Only a successful answer names a model that exists.
std::string_view model_label(const Request& request) {
  return is_success(request.code) ? std::string_view(request.model) : std::string_view();
}

auto identity_tie(const Identity& who) {
  return std::tie(who.name_space, who.workload, who.pod, who.container, who.node, who.comm, who.pid);
}

int last_phase(const Request& request) {
  for (int phase = IW_PHASES_MAX - 1; phase >= 0; --phase) {
    if (request.phases_ns[static_cast<std::size_t>(phase)]) return phase;
  }
  return 0;
}

std::uint16_t listener_port(const Request& request) {
  return request.role == IW_ROLE_CLIENT ? request.remote_port : request.local_port;
}

}  // namespace

bool RequestTracker::IdentityOrder::operator()(const std::shared_ptr<const Identity>& a,
                                               const std::shared_ptr<const Identity>& b) const {
  return identity_tie(*a) < identity_tie(*b);
}
bool RequestTracker::IdentityOrder::operator()(const std::shared_ptr<const Identity>& a, const Identity& b) const {
  return identity_tie(*a) < identity_tie(b);
}
bool RequestTracker::IdentityOrder::operator()(const Identity& a, const std::shared_ptr<const Identity>& b) const {
  return identity_tie(a) < identity_tie(*b);
}

RequestTracker::RequestTracker(metrics::Registry& registry, TrackerOptions options)
    : registry_(registry),
      options_(std::move(options)),
      edges_(options_.settings.gap_edges_ns.size()),
      history_(options_.finished_bytes_max) {
  // Kernel buckets are added to the registry's as they are.
  IW_CHECK(edges_ == registry_.edges(metrics::EdgesId::kGaps).size() && edges_ <= IW_GAP_EDGES_MAX);
}

// ---- Records ----

Recorded RequestTracker::on_record(const iw_record& record, bool final, std::uint64_t now_ns, const Identity& identity,
                                   const Clock& clock) {
  clock_ = clock;
  // Once a read was seen, a request that was not read yet is one that waits for its application.
  if ((record.request.head.flags & IW_REQ_READ_HOOK) != 0) options_.settings.reads_seen = true;
  Recorded recorded{make_request(record, final, clock, options_.settings, now_ns), {}};
  const Request& request = recorded.request;
  const Key key{request.cookie, request.ordinal};
  if (finished_.contains(key)) {
    ++status_.stale_total;
    return recorded;
  }
  if (request.route == IW_ROUTE_OTHER) {
    if (!final) return recorded;
    add_request(request, identity);
    recorded.line = to_json_line(request, identity);  // a stream: whoever looks for a route to configure finds it here
    remember_finished(key);
    return recorded;
  }

  Open* open = find_or_follow(key, identity);
  Counted unfollowed;
  if (open != nullptr) {
    open->iterations_unseen = 0;
    update_view(record.request, request, now_ns, open->view);
    add_progress(request, *open->who, open->counted);
  } else if (final) {
    add_progress(request, identity, unfollowed);
  } else {
    ++status_.unfollowed_total;
  }

  if (final) {
    const Identity& who = open != nullptr ? *open->who : identity;
    add_request(request, who);
    add_ended(request, who);
    recorded.line = to_json_line(request, who);
    history_.add(request, who, recorded.line, now_ns);
    ++status_.finished_total;
    open_.erase(key);
    remember_finished(key);
  }
  return recorded;
}

std::shared_ptr<const Identity> RequestTracker::intern(const Identity& identity) {
  const auto known = identities_.find(identity);
  if (known != identities_.end()) return *known;
  return *identities_.insert(std::make_shared<const Identity>(identity)).first;
}

// The open request, made or brought back if need be; null beyond the limit.
RequestTracker::Open* RequestTracker::find_or_follow(const Key& key, const Identity& identity) {
  if (const auto known = open_.find(key); known != open_.end()) return &known->second;
  if (open_.size() >= options_.open_max) return nullptr;

  if (auto node = forgotten_.extract(key); !node.empty()) {
    // It was not lost after all: what it had counted is not counted twice.
    Open& open = node.mapped();
    const auto twice = counted_twice_.find(owner_key(*open.who, open.view.role));
    if (twice != counted_twice_.end()) {
      Amounts& amounts = twice->second.amounts;
      amounts.chunks = std::max(0.0, amounts.chunks - open.counted.chunks);
      amounts.tokens_output = std::max(0.0, amounts.tokens_output - open.counted.tokens_output);
      amounts.tokens_input = std::max(0.0, amounts.tokens_input - open.counted.tokens_input);
    }
    std::erase(forgotten_order_, key);
    return &open_.insert(std::move(node)).position->second;
  }
  Open& open = open_[key];
  open.who = intern(identity);
  return &open;
}

void RequestTracker::update_view(const iw_request& raw, const Request& request, std::uint64_t now_ns,
                                 View& view) const {
  if (view.chunks != 0 && request.chunks > view.chunks && raw.last_content_ns > view.last_content_ns) {
    view.recent_gap_ns = (raw.last_content_ns - view.last_content_ns) / (request.chunks - view.chunks);
  }
  view.start_ns = request.start_ns;
  view.seen_ns = std::max(view.seen_ns, now_ns);
  view.content_ns = raw.content_ns;
  view.last_content_ns = std::max(view.last_content_ns, raw.last_content_ns);
  if (request.ttft_user_ns) view.ttft_ns = *request.ttft_user_ns;
  view.gap_max_ns = std::max({view.gap_max_ns, request.gaps_sent.max_ns, request.gaps_delivered.max_ns});
  view.chunks = std::max(view.chunks, request.chunks);
  view.ordinal = request.ordinal;
  view.port = listener_port(request);
  view.code = request.code;
  view.role = request.role;
  view.route = request.route;
  view.phase = static_cast<std::uint8_t>(std::max<int>(view.phase, last_phase(request)));
  view.stream = request.stream;
  view.ended = view.ended || raw.end_handed_ns != 0;
  view.model = model_label(request);
  view.local = request.local;
  view.remote = request.remote;
}

// ---- What a request adds while it is open ----

void RequestTracker::add_progress(const Request& request, const Identity& who, Counted& counted) {
  const std::string_view model = model_label(request);
  add_chunks(request, who, model, counted);
  add_first_times(request, who, model, counted);
  add_gaps(request, who, model, counted);
  add_retransmits(request, who, counted);
}

void RequestTracker::add_chunks(const Request& request, const Identity& who, std::string_view model, Counted& counted) {
  Amounts amounts;
  amounts.chunks = take_new(request.chunks, counted.chunks);
  amounts.tokens_output = take_new(request.tokens_output.value_or(0), counted.tokens_output);
  amounts.tokens_input = take_new(request.tokens_input.value_or(0), counted.tokens_input);
  add_amounts(who, request.role, model, amounts);

  const auto edges = registry_.edges(FamilyId::kChunksPerDelivery);
  std::vector<std::uint64_t> deliveries(edges.size() + 1);
  for (std::size_t bucket = 0; bucket < IW_BURST_BUCKETS; ++bucket) {
    const auto most_chunks = static_cast<double>(1u << bucket);  // beyond all edges in the last bucket
    deliveries[metrics::bucket_of(edges, most_chunks)] += take_new(request.bursts[bucket], counted.bursts[bucket]);
  }
  registry_.observe_counts(FamilyId::kChunksPerDelivery,
                           {who.name_space, workload_of(who), who.container, role_name(request.role)}, deliveries,
                           amounts.chunks);
}

void RequestTracker::add_amounts(const Identity& who, std::uint8_t role, std::string_view model,
                                 const Amounts& amounts) {
  const auto labels = label_values(who.name_space, workload_of(who), who.container, who.pod, role_name(role), model);
  if (amounts.chunks > 0) registry_.add(FamilyId::kOutputChunksTotal, borrow(labels), amounts.chunks);
  if (amounts.tokens_output > 0) registry_.add(FamilyId::kOutputTokensTotal, borrow(labels), amounts.tokens_output);
  if (amounts.tokens_input > 0) registry_.add(FamilyId::kInputTokensTotal, borrow(labels), amounts.tokens_input);
}

void RequestTracker::add_first_times(const Request& request, const Identity& who, std::string_view model,
                                     Counted& counted) {
  const std::string_view role = role_name(request.role);
  const std::string_view workload = workload_of(who);
  if (request.ttfb_ns && !std::exchange(counted.ttfb, true)) {
    registry_.observe(FamilyId::kTimeToFirstByteSeconds,
                      {who.name_space, workload, who.container, role, request.route_path}, seconds(*request.ttfb_ns));
  }
  if (request.chunks == 0) return;
  const auto observe_ttft = [&](std::string_view view, std::uint64_t ttft_ns) {
    registry_.observe(FamilyId::kTimeToFirstChunkSeconds,
                      {who.name_space, workload, who.container, role, request.route_path, model, view},
                      seconds(ttft_ns));
  };
  if (request.ttft_server_ns && !std::exchange(counted.ttft_server, true)) {
    observe_ttft("server", *request.ttft_server_ns);
  }
  if (request.ttft_user_ns && !std::exchange(counted.ttft_user, true)) observe_ttft("user", *request.ttft_user_ns);
}

void RequestTracker::add_gaps(const Request& request, const Identity& who, std::string_view model, Counted& counted) {
  const auto add = [&](std::string_view view, const Gaps& gaps, auto& buckets, std::uint64_t& sum_ns) {
    if (gaps.count == 0) return;
    std::array<std::uint64_t, IW_GAP_EDGES_MAX + 1> added{};
    bool any = false;
    for (std::size_t bucket = 0; bucket < gaps.buckets.size(); ++bucket) {
      added[bucket] = take_new(gaps.buckets[bucket], buckets[bucket]);
      any = any || added[bucket] != 0;
    }
    const std::uint64_t added_ns = take_new(gaps.sum_ns, sum_ns);
    if (!any) return;
    registry_.observe_counts(FamilyId::kTimePerOutputChunkSeconds,
                             {who.name_space, workload_of(who), who.container, role_name(request.role), model, view},
                             std::span(added.data(), edges_ + 1), seconds(added_ns));
  };
  add("sent", request.gaps_sent, counted.gap_sent, counted.gap_sent_sum_ns);
  add("delivered", request.gaps_delivered, counted.gap_delivered, counted.gap_delivered_sum_ns);
}

void RequestTracker::add_retransmits(const Request& request, const Identity& who, Counted& counted) {
  for (std::size_t phase = 0; phase < IW_PHASES_MAX; ++phase) {
    std::uint32_t segments = 0;
    for (const std::uint16_t of_type : request.retransmits[phase]) segments += of_type;
    const std::uint32_t added = take_new(segments, counted.retransmits[phase]);
    const std::string_view name = phase_name(request.role, static_cast<int>(phase));
    if (added == 0 || name.empty()) continue;
    registry_.add(FamilyId::kRequestRetransmittedSegmentsTotal,
                  {who.name_space, workload_of(who), who.container, who.pod, role_name(request.role), name}, added);
  }
}

// ---- What a request adds when it has ended ----

void RequestTracker::add_request(const Request& request, const Identity& who) {
  const bool other = request.route == IW_ROUTE_OTHER;
  registry_.add(
      FamilyId::kRequestsTotal,
      {who.name_space, workload_of(who), who.container, who.pod, role_name(request.role),
       port_label(request.role, listener_port(request)), kProtocol, request.route_path,
       other ? std::string_view() : model_label(request), code_label(request.code), outcome_name(request.outcome)});
}

void RequestTracker::add_ended(const Request& request, const Identity& who) {
  const std::string_view role = role_name(request.role);
  const std::string_view workload = workload_of(who);
  const std::string_view model = model_label(request);
  const std::string_view stream = request.stream ? "true" : "false";
  const double duration = seconds(request.duration_ns);
  const auto of_duration = label_values(who.name_space, workload, who.container, role, request.route_path, stream);
  registry_.observe(FamilyId::kRequestDurationSeconds, borrow(of_duration), duration);
  registry_.add(FamilyId::kRequestDurationSecondsSquaredTotal, borrow(of_duration), duration * duration);

  for (int phase = 0; phase < IW_PHASES_MAX; ++phase) {
    const OptionalNs& phase_ns = request.phases_ns[static_cast<std::size_t>(phase)];
    if (!phase_ns) continue;
    registry_.observe(FamilyId::kRequestPhaseSeconds,
                      {who.name_space, workload, who.container, role, phase_name(request.role, phase)},
                      seconds(*phase_ns));
  }

  const auto of_route = label_values(who.name_space, workload, who.container, role, request.route_path);
  registry_.observe(FamilyId::kRequestBodyBytes, borrow(of_route), static_cast<double>(request.request_body_bytes));
  if (request.code != 0) {
    registry_.observe(FamilyId::kResponseBodyBytes, borrow(of_route), static_cast<double>(request.response_body_bytes));
  }
  if (request.time_per_token_ns) {
    registry_.observe(FamilyId::kTimePerOutputTokenSeconds, {who.name_space, workload, who.container, role, model},
                      seconds(*request.time_per_token_ns));
  }
  if (request.role != IW_ROLE_SERVER) return;  // once per hop: the client's record of the same answer says the same
  const auto of_tail = label_values(who.name_space, workload, who.container, model, "wire");
  if (request.queue_ns) registry_.observe(FamilyId::kServerQueueSeconds, borrow(of_tail), seconds(*request.queue_ns));
  if (request.prefill_ns)
    registry_.observe(FamilyId::kServerPrefillSeconds, borrow(of_tail), seconds(*request.prefill_ns));
}

std::string RequestTracker::port_label(std::uint8_t role, std::uint16_t port) const {
  const auto& known = options_.known_ports;
  const bool usual = port < 1024 ||
                     std::find(std::begin(kUsualPorts), std::end(kUsualPorts), port) != std::end(kUsualPorts) ||
                     std::find(known.begin(), known.end(), port) != known.end();
  return role == IW_ROLE_SERVER || usual ? std::to_string(port) : "other";
}

void RequestTracker::remember_finished(const Key& key) {
  if (!finished_.insert(key).second) return;
  finished_order_.push_back(key);
  if (finished_order_.size() <= kFinishedKeysMax) return;
  finished_.erase(finished_order_.front());
  finished_order_.pop_front();
}

// ---- Counts and losses ----

void RequestTracker::on_count(const iw_count_key& key, const iw_count& delta, const Identity& identity) {
  if (delta.requests != 0) {
    registry_.add(FamilyId::kRequestsTotal,
                  {identity.name_space, workload_of(identity), identity.container, identity.pod, role_name(key.role),
                   port_label(key.role, key.port), kProtocol, route_name(key.route, options_.settings), "",
                   code_label(key.code), outcome_name(key.outcome)},
                  static_cast<double>(delta.requests));
  }
  if (key.route == IW_ROUTE_OTHER) return;
  const Amounts amounts{static_cast<double>(delta.chunks), static_cast<double>(delta.tokens_output),
                        static_cast<double>(delta.tokens_input)};
  if (amounts.chunks == 0 && amounts.tokens_output == 0 && amounts.tokens_input == 0) return;
  held_.push_back({intern(identity), key.role, amounts, iteration_ + held_iterations()});
}

std::uint64_t RequestTracker::held_iterations() const {
  return static_cast<std::uint64_t>(options_.forget_after_iterations) + kHeldExtraIterations;
}

RequestTracker::OwnerKey RequestTracker::owner_key(const Identity& who, std::uint8_t role) {
  return {who.name_space, std::string(workload_of(who)), who.container, who.pod, role};
}

void RequestTracker::on_stats(std::span<const std::uint64_t> stats) {
  IW_CHECK(stats.size() >= IW_STAT_MAX);
  for (std::size_t kind = IW_REC_FINAL; kind < IW_REC_KINDS; ++kind) {
    const std::string_view name = record_kind_name(kind);
    registry_.set(FamilyId::kRecordsTotal, {name}, static_cast<double>(stats[IW_STAT_RECORDS_SEEN + kind]));
    registry_.set(FamilyId::kRecordsLostTotal, {name, "ring_buffer"},
                  static_cast<double>(stats[IW_STAT_RECORDS_LOST + kind]));
  }
  for (std::size_t stat = 0; stat < IW_STAT_MAX; ++stat) {
    const std::string_view event = packet_path_event_name(stat);
    if (!event.empty()) registry_.set(FamilyId::kPacketPathEventsTotal, {event}, static_cast<double>(stats[stat]));
  }
}

void RequestTracker::on_connection(const iw_conn& conn, const Identity& who) {
  const std::uint16_t port = conn.role == IW_ROLE_SERVER ? conn.local_port : conn.remote_port;
  ++connections_[{who.name_space, std::string(workload_of(who)), who.container, who.pod,
                  std::string(role_name(conn.role)), port_label(conn.role, port)}];
}

void RequestTracker::touch(const Identity& who, std::uint64_t now_ns) {
  registry_.touch({who.name_space, workload_of(who), who.container, who.pod}, base::monotonic_from_ns(now_ns));
}

void RequestTracker::end_iteration(std::uint64_t now_ns) {
  (void)now_ns;
  ++iteration_;
  registry_.zero(FamilyId::kConnectionsOpen);
  for (const auto& [labels, count] : connections_) {
    registry_.set(FamilyId::kConnectionsOpen, {labels[0], labels[1], labels[2], labels[3], labels[4], labels[5]},
                  static_cast<double>(count));
  }
  connections_.clear();
  for (auto open = open_.begin(); open != open_.end();) {
    const auto next = std::next(open);
    if (++open->second.iterations_unseen > options_.forget_after_iterations) forget(open);
    open = next;
  }
  release_counts(false);
  // What no lost record has claimed by now never was in one.
  std::erase_if(counted_twice_,
                [&](const auto& entry) { return entry.second.iteration + held_iterations() < iteration_; });
  std::erase_if(identities_, [](const auto& identity) { return identity.use_count() == 1; });
}

// Its socket is gone and its final record did not come: that record was lost, and `counts` has all of the request.
void RequestTracker::forget(OpenMap::iterator open) {
  ++status_.forgotten_total;
  const Counted& counted = open->second.counted;
  Twice& twice = counted_twice_[owner_key(*open->second.who, open->second.view.role)];
  twice.amounts.chunks += counted.chunks;
  twice.amounts.tokens_output += counted.tokens_output;
  twice.amounts.tokens_input += counted.tokens_input;
  twice.iteration = iteration_;

  const Key key = open->first;
  forgotten_.insert(open_.extract(open));
  forgotten_order_.push_back(key);
  if (forgotten_order_.size() <= kForgottenMax) return;
  forgotten_.erase(forgotten_order_.front());
  forgotten_order_.pop_front();
}

void RequestTracker::release_counts(bool all) {
  while (!held_.empty() && (all || held_.front().due_iteration <= iteration_)) {
    const Held held = std::move(held_.front());
    held_.pop_front();
    Amounts amounts = held.amounts;
    const auto twice = counted_twice_.find(owner_key(*held.who, held.role));
    if (twice != counted_twice_.end()) {
      const auto settle = [](double& amount, double& counted) {
        const double common = std::min(amount, counted);
        amount -= common;
        counted -= common;
      };
      settle(amounts.chunks, twice->second.amounts.chunks);
      settle(amounts.tokens_output, twice->second.amounts.tokens_output);
      settle(amounts.tokens_input, twice->second.amounts.tokens_input);
    }
    add_amounts(*held.who, held.role, "", amounts);
  }
}

void RequestTracker::flush_counts() { release_counts(true); }

// ---- What is open ----

void RequestTracker::tick(std::uint64_t now_ns) {
  registry_.zero(FamilyId::kRequestsInFlight);
  registry_.zero(FamilyId::kStreamsInFlight);
  registry_.zero(FamilyId::kStreamSilenceSecondsMax);
  std::set<const Identity*> touched;
  for (const auto& [key, open] : open_) {
    const Identity& who = *open.who;
    const View& view = open.view;
    const std::string_view workload = workload_of(who);
    const std::string_view role = role_name(view.role);
    const std::string port = port_label(view.role, view.port);
    const auto in_flight = label_values(who.name_space, workload, who.container, who.pod, role, port);
    registry_.add(FamilyId::kRequestsInFlight, borrow(in_flight), 1);
    if (touched.insert(&who).second) {
      registry_.touch({who.name_space, workload, who.container, who.pod}, base::monotonic_from_ns(now_ns));
    }
    if (!view.stream) continue;
    registry_.add(FamilyId::kStreamsInFlight, borrow(in_flight), 1);
    if (view.last_content_ns == 0 || view.ended || now_ns < view.last_content_ns) continue;
    registry_.raise(FamilyId::kStreamSilenceSecondsMax, {who.name_space, workload, who.container, who.pod, role},
                    seconds(now_ns - view.last_content_ns));
  }
}

TrackerStatus RequestTracker::status() const {
  TrackerStatus status = status_;
  status.open_requests = open_.size();
  status.open_streams = static_cast<std::size_t>(
      std::count_if(open_.begin(), open_.end(), [](const auto& entry) { return entry.second.view.stream; }));
  return status;
}

}  // namespace inferwire::model
