// Whether this replica's server has come to where the cluster was when the replica began. Before, what it
// does not show yet (a port that it listens at) says nothing about the server: it is replaying.
#pragma once

#include <cstdint>

namespace crane::proxy {

class CatchingUp {
  public:
    /// Looks again, at log indices. `cluster`: the furthest admission known in the cluster, 0: none is known.
    /// `admitted`: the last one of this replica's server. `level`: how far it has been given all that is for
    /// it (not each entry is), 0 if not all. `quiescent`: it has done all that it was given to do.
    void look(uint64_t cluster, uint64_t admitted, uint64_t level, bool quiescent) {
        if (goal_ == 0) goal_ = cluster;
        // What an entry has led to is only out when the next one is admitted, or nothing is left to be done.
        if (goal_ != 0 && (admitted > goal_ || (level >= goal_ && quiescent))) done_ = true;
    }
    bool done() const { return done_; }

  private:
    uint64_t goal_ = 0;
    bool done_ = false;
};

}  // namespace crane::proxy
