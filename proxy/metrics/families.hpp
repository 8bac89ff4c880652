// craned's status as Prometheus metrics: names, units and help texts are here, and nowhere else. Pure.
#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace crane::proxy {

/// `status` is craned's answer to "status". What is not in it (a witness has no server) is left out.
std::vector<prometheus::MetricFamily> metric_families(const nlohmann::json& status, int64_t now_s);

/// As Prometheus reads it (text format 0.0.4).
std::string metrics_text(const nlohmann::json& status, int64_t now_s);
constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace crane::proxy
