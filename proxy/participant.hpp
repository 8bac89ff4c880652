// What craned runs: a replica of a server (replica.hpp), or a witness (witness.hpp). craned knows of it what
// follows, and no more.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "paxos/core/membership.hpp"
#include "paxos/core/types.hpp"
#include "paxos/link/tls_files.hpp"

namespace crane::proxy {

class OperatorMail;

class Participant {
  public:
    struct Events {
        std::function<void()> lost;  ///< what it works on was taken away, or is to be begun anew
        std::function<void(const std::string&)> fatal;
        std::function<void(uint64_t index)> removed;  ///< from the cluster, by this log entry
        /// What the operator asked of another replica, which handed it on. Replies once, then or later.
        std::function<void(const nlohmann::json& request, std::function<void(nlohmann::json)> reply)> asked;
        /// In this view that replica leads (0: nobody is known to), or this one's role changed.
        std::function<void(uint64_t view, uint32_t leader)> led;
        /// The loop is held up by what takes long and cannot wait; called again and again meanwhile.
        std::function<void()> busy;
    };

    virtual ~Participant() = default;

    virtual void start() = 0;
    /// Does all that is to be done now. True: the loop may sleep.
    virtual bool turn() = 0;
    virtual void awake() = 0;
    /// Hands leadership over and closes the log, then calls `done`.
    virtual void stop(std::function<void()> done) = 0;

    virtual nlohmann::json status() const = 0;
    /// Has written out what the output log still holds in memory, and waits for it for a moment.
    virtual void flush_log() = 0;
    /// The operator has moved log files away.
    virtual void reopen_logs() = 0;

    virtual bool leads() const = 0;
    virtual uint32_t leader() const = 0;
    /// Nothing of it is being started or ended: this can be destroyed without waiting for it.
    virtual bool settled() const = 0;
    /// Its database is an old or a second copy.
    virtual bool disowned() const = 0;
    /// Of its links to the others.
    virtual paxos::TlsStanding tls_standing() const = 0;
    virtual bool alone() const = 0;
    /// Somebody else shall lead, whoever is best placed.
    virtual void hand_over() = 0;
    virtual OperatorMail& mail() = 0;
    /// Decided entries from `first` on, or from the oldest that is kept; a piece of the log.
    virtual std::vector<paxos::Entry> read_decided(uint64_t first) = 0;

    // --- orders of the operator: empty, or why not
    virtual std::string transfer(uint32_t to) = 0;
    virtual std::string signal_server(uint32_t signal) = 0;
    /// The server is ended and another one begun on its files, by decision.
    /// `image`: from a base image of this sum from then on; nothing: from what it has.
    virtual std::string restart_server(const std::optional<std::string>& image,
                                       std::optional<uint32_t> within_s) = 0;
    /// It is to come from another replica.
    virtual bool fetches_image() const = 0;
    /// The log's server, which is not there yet: a restart is to be asked for again then.
    virtual bool begins_server() const = 0;
    /// A checkpoint of the server that runs.
    virtual std::string take_checkpoint() = 0;
    /// This replica's server alone, from its newest checkpoint and the log; nobody decides it.
    virtual std::string remake_server() = 0;
    /// The replicas differ, and no majority agrees: whose state counts from now on, by decision.
    virtual std::string choose_base(uint32_t replica) = 0;
    virtual std::string change_membership(const paxos::MembershipChange& change) = 0;
};

}  // namespace crane::proxy
