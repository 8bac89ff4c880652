// The checkpoints of this replica, shipped to those who lack them, and fetched when it lacks one: the
// protocol (checkpoint_mail.hpp) with a thread for the disk and a timer that runs while there is something to
// do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>

#include "proxy/checkpoint_mail.hpp"
#include "proxy/worker.hpp"

struct event;
struct event_base;

namespace crane::proxy {

class CheckpointShipping {
  public:
    /// `fetched`: see CheckpointFetch::Events.
    CheckpointShipping(event_base* base, const std::shared_ptr<CheckpointFiles>& files, uint64_t bytes_per_s,
                       const ShipSend& send, std::function<void(uint64_t index)> fetched);
    ~CheckpointShipping();
    CheckpointShipping(const CheckpointShipping&) = delete;
    CheckpointShipping& operator=(const CheckpointShipping&) = delete;

    /// `offers`: see CheckpointMail::on_message().
    void on_message(uint32_t from, std::string_view message, bool offers = true);
    void on_link(uint32_t peer, bool up);
    void set_leader(uint32_t leader) { mail_.fetch().set_leader(leader); }
    /// See CheckpointFetch::want().
    void want(uint64_t min_index);
    uint64_t wanted() const { return mail_.fetch().wanted(); }
    bool wants_new_one() const { return mail_.fetch().wants_new_one(); }
    bool finds_none() const { return mail_.fetch().finds_none(); }
    /// One was found, and is on its way.
    bool comes() const { return mail_.fetch().progress().index != 0; }
    /// Entries of checkpoints that others read just now: CheckpointStore::prune() is to leave them.
    std::set<uint64_t> held() const;
    /// What is in the way of a checkpoint that is wanted; empty: nothing.
    const std::string& alarm() const { return mail_.fetch().error(); }
    /// {"wanted", "index", "bytes", "total", "source", "error"}; null when nothing is wanted.
    nlohmann::json status() const;

  private:
    void look();

    std::unique_ptr<Worker> worker_;
    CheckpointMail mail_;
    event* timer_;
    bool armed_ = false;
};

}  // namespace crane::proxy
