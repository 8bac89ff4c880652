// What `crane audit` told this replica of its last comparison: for the status, the alarm and the metrics.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace crane::proxy {

class AuditNote {
  public:
    static constexpr size_t kMaxTextBytes = 2048;

    /// Empty, or what is wrong with it; it is then not taken.
    std::string take(const nlohmann::json& told, int64_t now_s);
    /// Null while nobody has told anything.
    nlohmann::json json() const;

  private:
    int64_t told_s_ = 0;
    uint64_t records_ = 0;
    std::string difference_;  ///< empty: all replicas were equal, as far as they go
};

}  // namespace crane::proxy
