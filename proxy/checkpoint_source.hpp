// Ships this replica's checkpoints to those who ask. A pure protocol: files are read by jobs elsewhere, time
// is handed in.
//
// Rules kept here:
//   - nothing is sent that was not asked for, and one chunk is read at a time: what a link does not take
//     waits here, one chunk a peer, and keeps nobody else waiting;
//   - what goes out stays below the rate, all peers together;
//   - what a peer may have waiting is bounded; what it says beyond that is dropped, and it asks again.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "proxy/checkpoint_files.hpp"
#include "proxy/rate_limit.hpp"

namespace crane::proxy {

/// False: no link there, or it takes nothing now.
using ShipSend = std::function<bool(uint32_t to, const std::string& message)>;
/// `job` runs where it may take long, `done` later in the loop. In the order of the calls.
using ShipPost = std::function<void(std::function<void()> job, std::function<void()> done)>;

class CheckpointSource {
  public:
    CheckpointSource(std::shared_ptr<CheckpointFiles> files, ShipSend send, ShipPost post,
                     uint64_t bytes_per_s);

    void on_ask(uint32_t from, const AskWords& words);
    void on_read(uint32_t from, const ReadWords& words);
    void on_link(uint32_t peer, bool up);
    void tick(uint64_t now_ns);
    /// Nothing is to be done before somebody asks.
    bool idle() const;
    /// Entries of the checkpoints that somebody reads: not to be pruned yet.
    std::set<uint64_t> held(uint64_t now_ns) const;

  private:
    struct Peer {
        std::optional<AskWords> ask;
        std::deque<ReadWords> reads;
        std::string unsent;
        uint64_t unsent_ns = 0;  ///< since when
    };
    void advance();
    void answer_ask(uint32_t to, const AskWords& words);
    void answer_read(uint32_t to, const ReadWords& words);
    void done(uint32_t to, const std::string& message);
    void flush(uint32_t to, Peer& peer);

    std::shared_ptr<CheckpointFiles> files_;
    ShipSend send_;
    ShipPost post_;
    RateLimit limit_;
    std::map<uint32_t, Peer> peers_;  ///< those that have said something, and whose link is up
    uint32_t last_served_ = 0;
    bool busy_ = false;
    uint64_t now_ns_ = 0;
    std::map<uint64_t, uint64_t> read_ns_;  ///< of an entry's checkpoint: when it was last asked for
};

}  // namespace crane::proxy
