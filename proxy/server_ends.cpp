#include "proxy/server_ends.hpp"

#include <string.h>

namespace crane::proxy {

namespace {

struct Line {
    uint64_t replica;
    ServerEnd end;
};

/// More than any membership has.
constexpr size_t kMostLines = 64;

}  // namespace

void ServerEnds::heard(uint32_t replica, const ServerEnd& end) {
    if (end.generation == 0) {
        ends_.erase(replica);
    } else {
        ends_[replica] = end;
    }
}

size_t ServerEnds::same(const ServerEnd& end, const std::vector<uint32_t>& of) const {
    size_t count = 0;
    for (const uint32_t replica : of) {
        const auto found = ends_.find(replica);
        count += found != ends_.end() && found->second == end;
    }
    return count;
}

std::optional<uint64_t> ServerEnds::majority(uint64_t generation,
                                             const std::vector<uint32_t>& servers) const {
    for (const auto& [replica, end] : ends_)
        if (end.generation == generation && end.admitted != ServerEnd::kUnstarted &&
            2 * same(end, servers) > servers.size())
            return end.admitted;
    return std::nullopt;
}

std::string ServerEnds::word(uint32_t self, const ServerEnd& own) const {
    std::map<uint32_t, ServerEnd> all = ends_;
    if (own.generation != 0) all[self] = own;
    std::string word;
    for (const auto& [replica, end] : all) {
        const Line line{replica, end};
        word.append(reinterpret_cast<const char*>(&line), sizeof(line));
    }
    return word;
}

bool ServerEnds::follow(uint32_t self, std::string_view word) {
    if (word.size() % sizeof(Line) != 0 || word.size() / sizeof(Line) > kMostLines) return false;
    ends_.clear();
    for (; !word.empty(); word.remove_prefix(sizeof(Line))) {
        Line line{};
        memcpy(static_cast<void*>(&line), word.data(), sizeof(line));
        if (line.replica != self) heard(static_cast<uint32_t>(line.replica), line.end);
    }
    return true;
}

}  // namespace crane::proxy
