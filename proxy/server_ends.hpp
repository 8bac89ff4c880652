// Where the replicas' servers have ended, as far as this replica knows. Reports of it reach the leader, which
// tells all, itself included. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace crane::proxy {

struct ServerEnd {
    uint64_t generation = 0;  ///< which server; 0: it runs
    uint64_t admitted = 0;    ///< index of the last log entry that it had; or kUnstarted
    /// It could not be started, which says nothing of what it would do where it can.
    static constexpr uint64_t kUnstarted = UINT64_MAX;
    bool operator==(const ServerEnd&) const = default;
};

class ServerEnds {
  public:
    void heard(uint32_t replica, const ServerEnd& end);
    /// How many of these replicas have ended so.
    size_t same(const ServerEnd& end, const std::vector<uint32_t>& of) const;
    /// Behind which entry more than half of `servers` have ended with that server, which they could start.
    std::optional<uint64_t> majority(uint64_t generation, const std::vector<uint32_t>& servers) const;

    /// On the wire, from the leader `self`, whose own end is `own`.
    std::string word(uint32_t self, const ServerEnd& own) const;
    /// All that the leader knows of others than `self`, which knows of itself, instead of what was known.
    /// False: it is not well formed, and nothing changes.
    bool follow(uint32_t self, std::string_view word);

  private:
    std::map<uint32_t, ServerEnd> ends_;
};

}  // namespace crane::proxy
