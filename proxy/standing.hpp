// How far this replica's server is along the log beside the others'. One that is far behind, since it is
// replaying, should not lead while another can: a primary serves nobody before its own server has caught up.
#pragma once

#include <cstdint>
#include <map>

namespace crane::proxy {

class Standing {
  public:
    /// In entries: seconds of a busy replay. What load alone makes a replica lag is less.
    static constexpr uint64_t kFarBehind = 5000;
    /// A replica whose link is up has admitted so much.
    void heard(uint32_t replica, uint64_t admitted);
    /// What one that cannot be reached had admitted is no reason to wait for anybody.
    void gone(uint32_t replica) { admitted_.erase(replica); }
    /// The furthest of the others; 0: none is known.
    uint64_t others() const;
    /// It can be reached, and its server is far behind `own`, or it has none. Nothing is known of one that
    /// has said nothing yet.
    bool trails(uint32_t replica, uint64_t own) const;
    /// Looks again; `own` is the index of the last entry that this replica's server has admitted.
    bool far_behind(uint64_t own);

  private:
    std::map<uint32_t, uint64_t> admitted_;
    bool behind_ = false;
};

}  // namespace crane::proxy
