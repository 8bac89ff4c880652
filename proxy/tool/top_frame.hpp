// What `crane top` shows: one frame of text, from what all replicas say of themselves now and said before.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace crane::proxy {

/// Rows as of ask_all(): "alive" is true, or there is an "error".
struct TopSample {
    const nlohmann::json& rows;
    uint64_t at_ns;  ///< of any clock that goes on
};

struct TopLine {
    enum class Style { kPlain, kHead, kBad };
    std::string text;
    Style style = Style::kPlain;
};

/// At most `height` lines of at most `width` characters; what has no room is counted in the last line. Rates
/// and latencies are those between the two samples.
std::vector<TopLine> top_frame(const TopSample& before, const TopSample& now, size_t width, size_t height);

/// The value below which `share` of what came between two histograms of the status lies, as far as its
/// buckets tell; "-" where nothing came, ">1000" beyond the last bound.
std::string quantile_ms(const nlohmann::json& before, const nlohmann::json& now, double share);

}  // namespace crane::proxy
