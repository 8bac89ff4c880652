// craned's side of the gate (base/gate.hpp): where the domain of one replica is to stand still.
#pragma once

#include "base/gate.hpp"

namespace crane::proxy {

/// Where a domain is. Numbers are its own: whatever they say, craned stays whole.
struct Whereabouts {
    Place at;
    bool between = false;  ///< no operation is under way: the program's own code runs there
    bool stopped = false;  ///< and has come to the gate, so it does not compute for ever
    bool operator==(const Whereabouts&) const = default;
};

class DomainGate {
  public:
    explicit DomainGate(Gate& gate) : gate_(gate) {}

    /// The domain goes no further than to this place. Costs some milliseconds when it is told anew: what
    /// look() says from then on holds for good where it says `between`.
    void close(Place place);
    void open();
    bool closed() const { return told_.clock != 0; }
    Whereabouts look() const;

  private:
    void tell(Place place);
    bool stopped() const;

    Gate& gate_;
    Place told_;
    uint64_t sure_ns_ = 0;  ///< from then on what was told is seen by all
};

}  // namespace crane::proxy
