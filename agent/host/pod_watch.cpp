// SPDX-License-Identifier: Apache-2.0
#include "agent/host/pod_watch.h"

#include <curl/curl.h>

#include <algorithm>
#include <functional>
#include <random>
#include <utility>

#include "agent/base/file.h"
#include "agent/base/log.h"

namespace inferwire::host {
namespace {

constexpr std::size_t kPodsMax = 4096;
constexpr std::size_t kListBytesMax = 64u << 20;
constexpr std::size_t kLineBytesMax = 4u << 20;
constexpr std::chrono::seconds kRememberGone{600};
constexpr long kHttpOk = 200, kHttpGone = 410;
constexpr long kConnectSeconds = 10, kListSeconds = 60;
// The server ends a watch after that time; a connection that nobody answers on is given up a little later.
constexpr int kWatchSeconds = 300;
constexpr long kWatchLateSeconds = 330;

std::string without_white_space_at_the_end(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

// Those of containers that have been started again; not without end.
void keep_containers(PodObject& pod, PodObject& before) {
  constexpr std::size_t kMost = 64;
  if (before.containers.size() <= kMost) pod.containers.merge(before.containers);
}

}  // namespace

// GET requests, one at a time, which another thread can interrupt.
class PodWatch::Http {
 public:
  explicit Http(const PodWatchOptions& options) : options_(options) {
    static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
    (void)global;
    multi_ = curl_multi_init();
    easy_ = curl_easy_init();
  }
  ~Http() {
    curl_easy_cleanup(easy_);
    curl_multi_cleanup(multi_);
  }
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  void stop() {
    stopped_ = true;
    curl_multi_wakeup(multi_);
  }
  bool stopped() const { return stopped_; }

  void wait(std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (!stopped_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      if (left.count() <= 0) return;
      curl_multi_poll(multi_, nullptr, 0, static_cast<int>(left.count()), nullptr);
    }
  }

  std::string escape(const std::string& text) const {
    char* escaped = curl_easy_escape(easy_, text.c_str(), static_cast<int>(text.size()));
    std::string result = escaped == nullptr ? "" : escaped;
    curl_free(escaped);
    return result;
  }

  // Takes bytes of the body as they come; false: enough.
  using Take = std::function<bool(std::string_view)>;

  // The status, or why there is none. `take` gets the body of a 200 only, first an empty piece as soon as the status is
  // there; `other_body()` has the begin of any other.
  tl::expected<long, std::string> get(const std::string& path, long timeout_s, const Take& take) {
    auto token = base::read_text(options_.token_file);  // each time: it is renewed every hour
    if (!token) return tl::unexpected(token.error().to_string());
    const std::string header = "Authorization: Bearer " + without_white_space_at_the_end(std::move(*token));
    curl_slist* headers = curl_slist_append(nullptr, header.c_str());
    headers = curl_slist_append(headers, "Accept: application/json");
    take_ = &take;
    told_ = false;
    other_body_.clear();
    const std::string url = options_.url + path;
    char why[CURL_ERROR_SIZE] = "";
    curl_easy_reset(easy_);
    curl_easy_setopt(easy_, CURLOPT_URL, url.c_str());
    curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy_, CURLOPT_CAINFO, options_.ca_file.c_str());
    curl_easy_setopt(easy_, CURLOPT_CAPATH, nullptr);
    curl_easy_setopt(easy_, CURLOPT_PROTOCOLS_STR, "https");
    curl_easy_setopt(easy_, CURLOPT_PROXY, "");
    curl_easy_setopt(easy_, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy_, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy_, CURLOPT_TCP_KEEPIDLE, 30L);
    curl_easy_setopt(easy_, CURLOPT_TCP_KEEPINTVL, 10L);
    curl_easy_setopt(easy_, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    curl_easy_setopt(easy_, CURLOPT_TIMEOUT, timeout_s);
    curl_easy_setopt(easy_, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(easy_, CURLOPT_WRITEFUNCTION, &Http::on_bytes);
    curl_easy_setopt(easy_, CURLOPT_WRITEDATA, this);
    const CURLcode code = perform();
    curl_slist_free_all(headers);
    curl_easy_setopt(easy_, CURLOPT_ERRORBUFFER, nullptr);
    if (stopped_) return tl::unexpected(std::string("stopped"));
    if (code != CURLE_OK && code != CURLE_WRITE_ERROR) {
      return tl::unexpected(options_.url + ": " + (why[0] != '\0' ? why : curl_easy_strerror(code)));
    }
    return status();
  }
  const std::string& other_body() const { return other_body_; }

 private:
  long status() const {
    long status = 0;
    curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
    return status;
  }

  CURLcode perform() {
    curl_multi_add_handle(multi_, easy_);
    CURLcode result = CURLE_ABORTED_BY_CALLBACK;
    int running = 1;
    while (running != 0 && !stopped_) {
      if (curl_multi_perform(multi_, &running) != CURLM_OK) break;
      if (!told_ && status() == kHttpOk) told_ = (*take_)("");
      if (running != 0) curl_multi_poll(multi_, nullptr, 0, 1000, nullptr);
    }
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg == CURLMSG_DONE) result = message->data.result;
    }
    curl_multi_remove_handle(multi_, easy_);
    return result;
  }

  static std::size_t on_bytes(char* bytes, std::size_t, std::size_t size, void* context) {
    auto* self = static_cast<Http*>(context);
    const std::string_view text(bytes, size);
    if (self->status() == kHttpOk) return (*self->take_)(text) ? size : 0;
    constexpr std::size_t kOtherMost = 4096;
    self->other_body_.append(text.substr(0, kOtherMost - std::min(kOtherMost, self->other_body_.size())));
    return size;
  }

  const PodWatchOptions& options_;
  CURLM* multi_ = nullptr;
  CURL* easy_ = nullptr;
  std::atomic<bool> stopped_ = false;
  const Take* take_ = nullptr;
  bool told_ = false;
  std::string other_body_;
};

PodWatch::PodWatch(PodWatchOptions options) : options_(std::move(options)), http_(std::make_unique<Http>(options_)) {}

PodWatch::~PodWatch() = default;

void PodWatch::stop() { http_->stop(); }

void PodWatch::run() {
  std::minstd_rand random(std::random_device{}());
  std::chrono::milliseconds retry = options_.retry_first;
  while (!http_->stopped()) {
    const Time began = std::chrono::steady_clock::now();
    Outcome done;
    if (version_.empty()) done = list();
    if (done && !options_.kubelet) done = watch();
    if (http_->stopped()) return;
    if (done || done.error().too_old) {
      if (!done) version_.clear();
      too_old_ = !done;
      retry = options_.retry_first;
      // A server that ends each watch at once is not asked all the time.
      const Time next = began + (options_.kubelet ? options_.poll_every : options_.retry_first);
      http_->wait(std::chrono::ceil<std::chrono::milliseconds>(next - std::chrono::steady_clock::now()));
      continue;
    }
    set_problem(done.error().why);
    // Not all nodes at once.
    std::uniform_int_distribution<std::chrono::milliseconds::rep> part(retry.count() / 2, retry.count());
    http_->wait(std::chrono::milliseconds(part(random)));
    retry = std::min(retry * 2, options_.retry_most);
  }
}

PodWatch::Outcome PodWatch::list() {
  std::string path = "/pods";
  if (!options_.kubelet) {
    path = "/api/v1/pods?fieldSelector=" + http_->escape("spec.nodeName=" + options_.node);
    if (!too_old_) path += "&resourceVersion=0";  // from the server's cache
  }
  std::string body;
  const auto status = http_->get(path, kListSeconds, [&](std::string_view bytes) {
    body += bytes;
    return body.size() <= kListBytesMax;
  });
  if (!status) return tl::unexpected(Failure{status.error()});
  if (*status != kHttpOk) {
    return tl::unexpected(Failure{"HTTP " + std::to_string(*status) + ": " + status_message(http_->other_body())});
  }
  auto list = parse_pod_list(body);
  if (!list) return tl::unexpected(Failure{list.error().why});
  if (options_.kubelet) set_problem("");
  const std::lock_guard lock(mutex_);
  std::unordered_map<std::string, Known> before = std::exchange(pods_, {});
  for (PodObject& pod : list->pods) {
    if (const auto known = before.find(pod.uid); known != before.end()) {
      keep_containers(pod, known->second.pod);
      before.erase(known);
    }
    std::string uid = pod.uid;
    pods_[std::move(uid)] = {std::move(pod), std::nullopt};
  }
  for (auto& [uid, known] : before) {
    if (!known.gone_at) known.gone_at = std::chrono::steady_clock::now();
    pods_.emplace(uid, std::move(known));
  }
  forget();
  if (!options_.kubelet) version_ = list->resource_version;
  return {};
}

PodWatch::Outcome PodWatch::watch() {
  const std::string path =
      "/api/v1/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=" + std::to_string(kWatchSeconds) +
      "&resourceVersion=" + http_->escape(version_) +
      "&fieldSelector=" + http_->escape("spec.nodeName=" + options_.node);
  std::string line;
  bool open = false;
  Outcome outcome;
  const auto status = http_->get(path, kWatchLateSeconds, [&](std::string_view bytes) {
    open = true;
    set_problem("");
    line += bytes;
    for (std::size_t end = line.find('\n'); end != std::string::npos && outcome; end = line.find('\n')) {
      outcome = on_event(std::string_view(line).substr(0, end));
      line.erase(0, end + 1);
    }
    if (outcome && line.size() > kLineBytesMax) outcome = tl::unexpected(Failure{"a watch event of over 4 MiB"});
    return outcome.has_value();
  });
  if (!outcome) return outcome;
  if (!status && open) return {};  // cut; a fault only if the next one cannot be opened
  if (!status) return tl::unexpected(Failure{status.error()});
  if (*status == kHttpGone) return tl::unexpected(Failure{"the version is too old", true});
  if (*status != kHttpOk) {
    return tl::unexpected(Failure{"HTTP " + std::to_string(*status) + ": " + status_message(http_->other_body())});
  }
  return {};  // the next one goes on where it was
}

PodWatch::Outcome PodWatch::on_event(std::string_view line) {
  if (line.empty()) return {};
  auto event = parse_pod_event(line);
  if (!event) return tl::unexpected(Failure{event.error().to_string()});
  switch (event->kind) {
    case PodEvent::Kind::kError:
      if (event->code == kHttpGone) return tl::unexpected(Failure{"the version is too old", true});
      return tl::unexpected(Failure{"the watch ended with " + std::to_string(event->code) + ": " + event->message});
    case PodEvent::Kind::kThere:
      learn(std::move(event->pod));
      break;
    case PodEvent::Kind::kGone:
      set_gone(event->pod.uid);
      break;
    case PodEvent::Kind::kBookmark:
      break;
  }
  if (!event->resource_version.empty()) version_ = event->resource_version;
  return {};
}

void PodWatch::learn(PodObject pod) {
  const std::lock_guard lock(mutex_);
  Known& known = pods_[pod.uid];
  keep_containers(pod, known.pod);
  known = {std::move(pod), std::nullopt};
  forget();
}

void PodWatch::set_gone(const std::string& uid) {
  const std::lock_guard lock(mutex_);
  if (const auto known = pods_.find(uid); known != pods_.end())
    known->second.gone_at = std::chrono::steady_clock::now();
}

// With the lock held.
void PodWatch::forget() {
  const Time now = std::chrono::steady_clock::now();
  std::erase_if(pods_,
                [&](const auto& entry) { return entry.second.gone_at && now - *entry.second.gone_at > kRememberGone; });
  while (pods_.size() > kPodsMax) {
    const auto sooner = [](const auto& a, const auto& b) {
      return a.second.gone_at.value_or(Time::max()) < b.second.gone_at.value_or(Time::max());
    };
    pods_.erase(std::min_element(pods_.begin(), pods_.end(), sooner));
  }
}

void PodWatch::set_problem(std::string problem) {
  if (problem.empty()) {
    base::log_again("pod_watch");
  } else {
    base::log_once(base::LogLevel::kWarn, "pod_watch", "pods are not watched: " + problem);
  }
  const std::lock_guard lock(mutex_);
  problem_ = std::move(problem);
}

std::string PodWatch::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

std::optional<PodName> PodWatch::find(std::string_view uid, std::string_view short_id) const {
  const std::lock_guard lock(mutex_);
  const auto known = pods_.find(std::string(uid));
  if (known == pods_.end()) return std::nullopt;
  PodName name = known->second.pod.name;
  const auto& containers = known->second.pod.containers;
  if (const auto container = containers.find(std::string(short_id)); container != containers.end()) {
    name.container = container->second;
  }
  return name;
}

}  // namespace inferwire::host
