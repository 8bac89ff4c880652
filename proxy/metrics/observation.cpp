#include "proxy/metrics/observation.hpp"

#include <time.h>

#include "base/clock.hpp"
#include "proxy/metrics/conditions.hpp"
#include "proxy/metrics/families.hpp"
#include "proxy/metrics/page.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

constexpr uint64_t kLookEveryNs = 100'000'000;
constexpr int kUnavailable = 503;
constexpr int kNotFound = 404;

HttpAnswer health(const std::string& why) {
    HttpAnswer out;
    out.code = why.empty() ? 200 : kUnavailable;
    out.body = why.empty() ? "ok\n" : why + "\n";
    return out;
}

}  // namespace

Observation::Observation(event_base* base, const std::string& listen, std::function<json()> look)
    : look_(std::move(look)), server_(base, listen, [this](std::string_view path) { return answer(path); }) {}

void Observation::look() {
    const uint64_t now = monotonic_ns();
    if (looked_ns_ != 0 && now - looked_ns_ < kLookEveryNs) return;
    looked_ns_ = now;
    status_ = look_();
    metrics_.clear();
}

std::string Observation::status_text() const {
    json alarms = json::array();
    for (const Alarm& one : alarms_in(status_, time(nullptr)))
        alarms.push_back({{"name", alarm_name(one.kind)}, {"text", one.text}});
    return json{{"status", status_}, {"alarms", alarms}, {"unhealthy", why_unhealthy(status_)}}.dump(
        -1, ' ', false, json::error_handler_t::replace);
}

HttpAnswer Observation::answer(std::string_view path) {
    if (path == "/") return {200, "text/html; charset=utf-8", kPage};
    const bool known = path == "/metrics" || path == "/health" || path == "/health/serving" ||
                       path == "/health/primary" || path == "/status.json";
    if (!known)
        return {kNotFound, "text/plain; charset=utf-8",
                "there are /, /metrics, /health/serving, /health/primary and /status.json\n"};
    look();
    if (path == "/status.json") return {200, "application/json", status_text()};
    if (path == "/health/primary") return health(why_not_primary(status_));
    if (path != "/metrics") return health(why_unhealthy(status_));
    if (metrics_.empty()) metrics_ = metrics_text(status_, time(nullptr));
    return {200, kMetricsType, metrics_};
}

}  // namespace crane::proxy
