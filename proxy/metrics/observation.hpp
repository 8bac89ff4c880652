// What craned serves at [metrics] listen: /metrics for Prometheus, /health for load balancers, and a page for
// people at /. Whoever asks more often than ten times a second is answered from the last look.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "proxy/metrics/http_server.hpp"

struct event_base;

namespace crane::proxy {

class Observation {
  public:
    /// `look` gives craned's status as it is now. Throws like HttpServer.
    Observation(event_base* base, const std::string& listen, std::function<nlohmann::json()> look);

    /// For tests, too.
    HttpAnswer answer(std::string_view path);

  private:
    void look();
    std::string status_text() const;

    std::function<nlohmann::json()> look_;
    nlohmann::json status_;
    std::string metrics_;  ///< of that status; empty: not asked for yet
    uint64_t looked_ns_ = 0;
    HttpServer server_;
};

}  // namespace crane::proxy
