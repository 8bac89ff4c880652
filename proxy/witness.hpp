// A replica without a server: it votes, keeps the log, and holds checkpoints for those that have one. The
// third vote for two hosts that run the server.
//
// Rules kept here:
//   - it never serves anybody and has no server, no container, no clients' ports;
//   - it is barred from leading (docs/paxos.md): it leads for a moment only where it alone has all that is
//     decided, and hands over to whom it has given that;
//   - it takes no checkpoints and can use none: it fetches one when the primary says that it is its turn, or
//     when the log elsewhere begins behind its own. So the log can be cut with one of two hosts lost.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "proxy/checkpoint_shipping.hpp"
#include "proxy/checkpoints.hpp"
#include "proxy/config.hpp"
#include "proxy/disk_watch.hpp"
#include "proxy/metrics/alarm.hpp"
#include "proxy/operator_mail.hpp"
#include "proxy/participant.hpp"
#include "proxy/sequencer.hpp"
#include "proxy/timekeeper.hpp"

struct event;
struct event_base;

namespace crane::proxy {

/// Said to every peer: who has no server is not asked about one.
constexpr char kWitnessWord = 'w';

class Witness : public Participant {
  public:
    Witness(event_base* base, const Config& config, Timekeeper& timekeeper,
            const std::shared_ptr<checkpoint::KnownSums>& sums, Events events);
    ~Witness() override;

    void start() override;
    bool turn() override { return true; }
    void awake() override {}
    void stop(std::function<void()> done) override;

    nlohmann::json status() const override;
    void flush_log() override {}
    void reopen_logs() override {}
    bool leads() const override { return sequencer_.leads(); }
    uint32_t leader() const override { return sequencer_.leader(); }
    bool settled() const override { return true; }
    bool disowned() const override { return sequencer_.disowned(); }
    paxos::TlsStanding tls_standing() const override { return sequencer_.tls_standing(); }
    bool alone() const override { return false; }
    void hand_over() override { sequencer_.transfer(0); }
    OperatorMail& mail() override { return mail_; }
    std::vector<paxos::Entry> read_decided(uint64_t first) override { return sequencer_.read_decided(first); }

    std::string transfer(uint32_t to) override;
    std::string signal_server(uint32_t) override { return leads_for_a_moment(); }
    std::string restart_server(const std::optional<std::string>&, std::optional<uint32_t>) override {
        return leads_for_a_moment();
    }
    bool fetches_image() const override { return false; }
    bool begins_server() const override { return false; }
    std::string take_checkpoint() override { return leads_for_a_moment(); }
    std::string remake_server() override;
    std::string choose_base(uint32_t) override { return leads_for_a_moment(); }
    std::string change_membership(const paxos::MembershipChange& change) override;

  private:
    void on_message(uint32_t from, const std::string& message);
    void on_membership(const paxos::MembershipAt& decided);
    void on_link(uint32_t peer, bool up);
    void on_role();
    void on_report(uint32_t from, const std::string& report);
    void on_turn_to_fetch(std::string_view said);
    void on_lack(std::string_view said);
    void lack(uint64_t index);
    void on_fetched(uint64_t index);
    std::string make_report() const;
    void housekeep();
    void watch_disk(uint64_t now_ns);
    std::string leads_for_a_moment() const;
    Alarms alarms() const;

    const Config& config_;
    Timekeeper& timekeeper_;
    Events events_;
    Checkpoints checkpoints_;
    OperatorMail mail_;
    Sequencer sequencer_;
    CheckpointShipping shipping_;
    DiskWatch disk_;
    event* housekeeping_;
    std::string clock_alarm_;
    std::set<uint32_t> witnesses_;
    uint64_t told_ns_ = 0;  ///< when the primary last heard that one comes
    uint64_t asked_ns_ =
        0;  ///< when the primary asked for the checkpoint that is being fetched; 0: it did not
    bool lacking_ = false;  ///< the log is to be begun anew behind a checkpoint that is fetched
    bool stopping_ = false;
};

}  // namespace crane::proxy
