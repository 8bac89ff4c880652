#include "proxy/log_limit.hpp"

#include <utility>

namespace crane::proxy {

namespace {

constexpr size_t kKindBytes = 32;    ///< of a line's beginning
constexpr size_t kQuotedBytes = 80;  ///< of one that was left out

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/// FNV-1a.
size_t place_of(std::string_view line) {
    uint64_t hash = 14695981039346656037ULL;
    size_t taken = 0;
    for (const char c : line) {
        if (is_digit(c)) continue;
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
        if (++taken == kKindBytes) break;
    }
    return (hash ^ hash >> 32) % LogLimit::kPlaces;
}

}  // namespace

bool LogLimit::admits(std::string_view line, uint64_t now_ns) {
    if (since_ns_ == 0) since_ns_ = now_ns;
    if (now_ns - since_ns_ >= kWindowNs) end_window(now_ns);
    Place& place = places_[place_of(line)];
    if (place.seen++ < kMost) return true;
    if (place.first_left_out.empty()) place.first_left_out = line.substr(0, kQuotedBytes);
    return false;
}

void LogLimit::end_window(uint64_t now_ns) {
    since_ns_ = now_ns;
    for (Place& place : places_) {
        if (place.seen > kMost && summaries_.size() < kPlaces)
            summaries_.push_back(std::to_string(place.seen - kMost) +
                                 " more lines like this were left out: " + place.first_left_out);
        place.seen = 0;
        place.first_left_out.clear();
    }
}

std::vector<std::string> LogLimit::take_summaries() {
    return std::exchange(summaries_, {});
}

}  // namespace crane::proxy
