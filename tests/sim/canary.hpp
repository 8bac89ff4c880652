// Planted bugs, each of which the simulator must notice: where a life can be tampered with.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "replica.hpp"

namespace crane::sim {

class Canary {
  public:
    virtual ~Canary() = default;
    virtual void disk(Disk&) {}
    /// The store was opened; what the core will be told of it.
    virtual void loaded(Replica&, paxos::StoredState&) {}
    virtual void before_turn(paxos::Core&) {}
    virtual void outbox(paxos::Outbox&) {}
    /// A message on its way into the core; may step the core with others, too.
    virtual void arriving(paxos::Core&, paxos::Message&) {}
    virtual bool change_membership(paxos::Core&, const paxos::MembershipChange&) { return false; }
    virtual bool forgets_loss() const { return false; }
    virtual bool counts_no_starts() const { return false; }
};

struct NamedCanary {
    std::string name;
    uint64_t within_seeds;  ///< must be caught in one of the first so many
    std::function<std::unique_ptr<Canary>()> make;
};
const std::vector<NamedCanary>& canaries();

}  // namespace crane::sim
