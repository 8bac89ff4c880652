// A cluster of real nodes in one process, on one event loop, for tests.
#pragma once

#include <arpa/inet.h>
#include <event2/event.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "paxos/link/frame.hpp"
#include "paxos/node.hpp"
#include "tests/unit/test_free_port.hpp"

namespace crane::paxos::testing {

using Clock = std::chrono::steady_clock;

using crane::testing::free_port;

struct Running {
    std::unique_ptr<Node> node;
    std::vector<Entry> decided;
    std::vector<Role> roles;
    std::vector<std::pair<uint32_t, std::string>> app, reports;
    unsigned writable = 0;
    std::vector<std::string> memberships;
    std::set<uint32_t> linked;  ///< peers to which its sending side is up
    std::string fatal;
};

class NodeCluster {
  public:
    /// `adjust` may change what is common to all replicas, before they start.
    explicit NodeCluster(unsigned replicas, const std::function<void(NodeConfig&)>& adjust = {},
                         std::function<TlsFiles(uint32_t id)> files = {})
        : tls(std::move(files)), base_(event_base_new(), event_base_free) {
        spdlog::set_level(spdlog::level::err);
        char name[] = "/tmp/crane-unit-node-XXXXXX";
        directory_ = mkdtemp(name);
        for (uint32_t id = 1; id <= replicas; ++id) config_.members.push_back({id, "127.0.0.1", free_port()});
        config_.cluster_id = "unit";
        config_.heartbeat_ms = 20;
        config_.election_timeout_ms = 300;
        if (adjust) adjust(config_);
        for (uint32_t id = 1; id <= replicas; ++id) start(id);
    }
    ~NodeCluster() {
        members_.clear();
        std::filesystem::remove_all(directory_);
    }

    NodeConfig config(uint32_t id) const {
        NodeConfig config = config_;
        config.self = id;
        if (tls) config.tls = tls(id);
        config.db_dir = directory_ + "/r" + std::to_string(id);
        return config;
    }

    void start(uint32_t id, const LogPosition& checkpoint = {}) {
        NodeConfig own = config(id);
        own.checkpoint = checkpoint;
        start(own);
    }

    void start(const NodeConfig& own) {
        const uint32_t id = own.self;
        Running& member = members_[id];
        member.decided.clear();
        NodeCallbacks callbacks;
        callbacks.on_decided = [&member](const Entry& entry) { member.decided.push_back(entry); };
        callbacks.on_role = [&member](Role role, uint64_t, uint32_t) { member.roles.push_back(role); };
        callbacks.make_report = [id] { return "report of " + std::to_string(id); };
        callbacks.on_report = [&member](uint32_t from, const std::string& report) {
            member.reports.emplace_back(from, report);
        };
        callbacks.on_app_message = [&member](uint32_t from, std::string message) {
            member.app.emplace_back(from, std::move(message));
        };
        callbacks.on_writable = [&member] { ++member.writable; };
        callbacks.on_fatal = [&member](const std::string& reason) { member.fatal = reason; };
        callbacks.on_membership = [&member](const MembershipAt& at) {
            member.memberships.push_back(describe(at.membership));
        };
        member.linked.clear();
        callbacks.on_peer = [&member](uint32_t peer, bool up) {
            if (up)
                member.linked.insert(peer);
            else
                member.linked.erase(peer);
        };
        member.node = std::make_unique<Node>(base_.get(), own, callbacks);
        member.node->start(own.checkpoint.index + 1);
    }

    void stop(uint32_t id) { members_.at(id).node.reset(); }

    template <typename Condition>
    bool run_until(Condition condition, int timeout_s = 10) {
        const auto limit = Clock::now() + std::chrono::seconds(timeout_s);
        while (!condition()) {
            if (Clock::now() > limit) return false;
            const timeval tick{0, 2'000};  // look again now and then even if nothing happens
            event_base_loopexit(base_.get(), &tick);
            event_base_loop(base_.get(), EVLOOP_ONCE);
        }
        return true;
    }

    void run_for(int ms) {
        const auto limit = Clock::now() + std::chrono::milliseconds(ms);
        run_until([&] { return Clock::now() >= limit; });
    }

    uint32_t leader() const {
        for (const auto& [id, member] : members_)
            if (member.node != nullptr && member.node->role() == Role::kLeader) return id;
        return 0;
    }
    bool await_leader() {
        return run_until([&] { return leader() != 0 && members_.at(leader()).node->can_propose(); });
    }
    /// All that run have links to all that run, and to nobody else.
    bool linked(const std::set<uint32_t>& ids) const {
        for (const uint32_t id : ids) {
            std::set<uint32_t> others = ids;
            others.erase(id);
            if (members_.at(id).linked != others) return false;
        }
        return true;
    }
    /// On whoever leads, again until it accepts.
    bool change(const MembershipChange& change) {
        return run_until([&] {
            const uint32_t at = leader();
            return at != 0 && members_.at(at).node->change_membership(change).empty();
        });
    }
    Running& operator[](uint32_t id) { return members_.at(id); }
    std::map<uint32_t, Running>& members() { return members_; }
    const std::string& directory() const { return directory_; }
    event_base* base() { return base_.get(); }

    size_t values(uint32_t id) const {
        size_t count = 0;
        for (const Entry& entry : members_.at(id).decided) count += entry.kind == EntryKind::kValue;
        return count;
    }

    /// Proposes `count` values, keeping the pipeline full, until all running replicas have `total` of them.
    bool pump(unsigned count, size_t total) {
        unsigned proposed = 0;
        return run_until([&] {
            const uint32_t at = leader();
            while (at != 0 && proposed < count &&
                   members_.at(at).node->propose("value " + std::to_string(next_)))
                ++proposed, ++next_;
            if (proposed < count) return false;
            for (const auto& [id, member] : members_)
                if (member.node != nullptr && values(id) < total) return false;
            return true;
        });
    }

    bool same_everywhere() {
        for (const auto& [id, member] : members_)
            for (const auto& [other, peer] : members_)
                for (size_t i = 0; i < std::min(member.decided.size(), peer.decided.size()); ++i)
                    if (member.decided[i].index != i + 1 ||
                        member.decided[i].chain != peer.decided[i].chain ||
                        *member.decided[i].value != *peer.decided[i].value)
                        return false;
        return true;
    }

    std::function<TlsFiles(uint32_t id)> tls;

  private:
    std::unique_ptr<event_base, void (*)(event_base*)> base_;
    std::string directory_;
    NodeConfig config_;
    std::map<uint32_t, Running> members_;
    unsigned next_ = 0;
};

}  // namespace crane::paxos::testing
