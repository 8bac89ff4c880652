// Where the server's processes were lost, again and again: a loss is this host's doing, and the server is
// made anew from the log; but one that comes at the same place each time is the server's own, and would come
// at every replay, for ever. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::proxy {

class LossHistory {
  public:
    /// So many times at one place is no accident. Whoever kills a server by hand does so at other places.
    static constexpr size_t kDeeds = 3;

    /// Not a signal: what its processes share was damaged.
    static constexpr int kDamage = -1;

    struct Loss {
        uint64_t admitted = 0;  ///< the last log entry that the server was given
        uint64_t clock = 0;     ///< its logical clock
        int signal = 0;         ///< that ended its main process; or kDamage
        bool operator==(const Loss&) const = default;
    };

    /// True: it is the server's own deed.
    bool lost(const Loss& loss) {
        times_ = loss == last_ ? times_ + 1 : 1;
        last_ = loss;
        return times_ >= kDeeds;
    }

  private:
    Loss last_;
    size_t times_ = 0;
};

}  // namespace crane::proxy
