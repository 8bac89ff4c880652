#include "paxos/link/refusal_log.hpp"

#include <algorithm>

namespace crane::paxos {

bool RefusalLog::is_news(const std::string& reason, uint64_t now_ms) {
    std::erase_if(seen_, [&](const Seen& one) { return now_ms >= one.at_ms + kRepeatAfterMs; });
    const bool known =
        std::any_of(seen_.begin(), seen_.end(), [&](const Seen& one) { return one.reason == reason; });
    if (known || seen_.size() >= kMaxReasons) {
        ++suppressed_;
        return false;
    }
    seen_.push_back({reason, now_ms});
    return true;
}

std::string printable(std::string_view words, size_t max_bytes) {
    std::string text(words.substr(0, max_bytes));
    for (char& c : text)
        if (c < 0x20 || c > 0x7e) c = '?';
    return text;
}

}  // namespace crane::paxos
