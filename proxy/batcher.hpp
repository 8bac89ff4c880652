// Collects client socket calls into batches. Pure: no clock, no socket.
//
// Everything queued when the log can take a batch becomes one batch, up to kMaxBatchBytes; while it cannot,
// calls wait here and coalesce. So do those that come while a batch is being decided: each costs every
// replica some system calls and a sync, whatever it carries, and the next one would wait for the same disks
// anyway. They do not wait long, for where replicas are far from each other more than one has to be on its
// way. The timestamps it gives rise strictly, whatever the clock does.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "timebubble/batch.hpp"

namespace crane::proxy {

/// Of kProgram.
std::string program_payload(uint64_t generation, const std::string& inventory);
/// The replica whose state counts from that batch on (kBase); 0: it says nothing of the kind.
uint32_t named_base(timebubble::BatchDecoder decoder);

class Batcher {
  public:
    /// Queues a call. Long kSend payloads are split; any other payload must fit into one batch.
    void add(timebubble::CallKind kind, uint64_t connection, std::string_view payload = {});
    /// The next batch carries the genesis alone, before everything queued.
    void set_genesis(const timebubble::GenesisPayload& genesis);
    /// What the first server is made of, which goes with the genesis.
    void set_first_program(std::string inventory) { first_program_ = std::move(inventory); }
    /// A batch that begins another server, which is made of `inventory`; what is queued stays.
    std::string start(const timebubble::StartPayload& start, const timebubble::GenesisPayload& genesis,
                      const std::string& inventory, uint64_t now_ns, uint64_t grant_clocks);
    /// A batch that says whose state counts from there on; what is queued stays.
    std::string base(uint32_t replica, uint64_t now_ns);
    /// A batch was seen in the log: later ones get a later timestamp.
    void saw_timestamp(uint64_t timestamp_ns);

    /// The latest in the log, or on its way there.
    uint64_t last_timestamp_ns() const { return last_timestamp_ns_; }

    bool empty() const { return !genesis_ && calls_ == 0; }
    /// Whether to propose what is queued: `undecided` batches are in the log and not decided, `under_way` are
    /// that or not admitted by the domain.
    bool due(uint64_t now_ns, uint64_t undecided, uint64_t under_way) const;
    /// When what is queued is due at the latest, as far as only the batch before it holds it up.
    uint64_t due_at_ns() const { return group_until_ns_; }
    size_t calls() const { return calls_; }
    size_t bytes() const { return bytes_; }
    /// Takes the next batch off the queue; an empty one (a time bubble) if nothing is queued.
    std::string take(uint64_t now_ns, uint64_t grant_clocks);
    /// Leadership is lost: what is queued will never be proposed.
    void clear();

  private:
    std::deque<timebubble::BatchEncoder> queue_;  ///< all but the last are full
    size_t calls_ = 0;
    size_t bytes_ = 0;
    std::string genesis_bytes_, first_program_;
    bool genesis_ = false;
    uint64_t last_timestamp_ns_ = 0;
    uint64_t group_until_ns_ = 0;
};

}  // namespace crane::proxy
