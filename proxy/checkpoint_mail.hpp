// Both sides of the shipping of checkpoints, on one letter of what daemons say to each other. Pure, like its
// two halves; checkpoint_shipping.hpp gives it a thread, a clock and a disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "paxos/link/refusal_log.hpp"
#include "proxy/checkpoint_fetch.hpp"
#include "proxy/checkpoint_source.hpp"

namespace crane::proxy {

class CheckpointMail {
  public:
    CheckpointMail(const std::shared_ptr<CheckpointFiles>& files, const ShipSend& send, const ShipPost& post,
                   CheckpointFetch::Events events, const FetchSettings& settings)
        : tell_(events.tell),
          source_(files, send, post, settings.bytes_per_s),
          fetch_(files, send, post, std::move(events), settings) {}

    /// What is not well formed is dropped, and told now and then: a peer of another version may say it.
    /// `offers`: what is here may be had by others; else they hear nothing, and ask somebody else.
    void on_message(uint32_t from, std::string_view message, bool offers = true);
    void on_link(uint32_t peer, bool up) {
        source_.on_link(peer, up);
        fetch_.on_link(peer, up);
    }
    void tick(uint64_t now_ns) {
        now_ns_ = now_ns;
        source_.tick(now_ns);
        fetch_.tick(now_ns);
    }
    bool idle() const { return source_.idle() && fetch_.idle(); }
    CheckpointFetch& fetch() { return fetch_; }
    const CheckpointFetch& fetch() const { return fetch_; }
    const CheckpointSource& source() const { return source_; }

  private:
    std::function<void(const std::string&)> tell_;
    CheckpointSource source_;
    CheckpointFetch fetch_;
    paxos::RefusalLog refused_;
    uint64_t now_ns_ = 0;
};

}  // namespace crane::proxy
