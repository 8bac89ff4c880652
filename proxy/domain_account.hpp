// What the domain holds of its clients, as this replica's craned knows it: from the decided sequence, from
// what the domain itself has put out, and, on the primary, from what has been proposed or promised beyond
// that. Pure.
//
// Rules:
//  - It never shows less than the domain holds when the next call proposed is admitted
//    (timebubble/limits.hpp), so what it has room for always fits there. It follows the log's order, not
//    time: what is proposed behind a reset is admitted behind it.
//  - Every replica keeps it, so a new primary begins with what its predecessors have left in the domain.
//  - A connection is in it from its connect to the domain's close, with where it stands for whoever leads
//    next: one look-up a call or record tells all of it.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proxy/connection_table.hpp"
#include "timebubble/batch.hpp"
#include "timebubble/limits.hpp"
#include "timebubble/transport.hpp"

namespace crane::proxy {

class DomainAccount {
  public:
    /// `input_bytes`: unread input beyond each connection's own chunks; at most what the domain has.
    explicit DomainAccount(uint64_t input_bytes);
    DomainAccount(const DomainAccount&) = delete;
    DomainAccount& operator=(const DomainAccount&) = delete;
    DomainAccount(DomainAccount&&) = default;

    // --- what was decided, and what the domain did
    void decided(const timebubble::Call& call);
    void on_output(const timebubble::OutputHeader& header, std::string_view payload);

    // --- what this primary has proposed, in the order of the proposals
    void proposed_connect(uint64_t connection, uint16_t port);
    /// The server's own connection to the outside is made.
    void proposed_egress(uint64_t connection) { add_accepted(connection); }
    void proposed_input(uint64_t connection, uint64_t bytes);
    void proposed_reset(uint64_t connection);
    /// So much more input may come of the connection, whatever happens (credit of a client at a backup).
    void promised_input(uint64_t connection, uint64_t bytes);
    /// And will not come.
    void returned_input(uint64_t connection, uint64_t bytes);
    /// Leadership is lost: what was proposed and not decided is another's business.
    void forget_proposals();

    /// Another server begins, who knows none of the connections.
    void forget_connections();
    /// And has no listeners: once the domain itself has come so far.
    void forget_listeners();

    // --- for a checkpoint, between two batches: what is decided is admitted, and nothing else is known
    struct KeptConnection {
        uint64_t id;
        uint16_t port;
        bool accepted;
        bool reset;
        uint64_t received, consumed;
    };
    struct Kept {
        std::vector<KeptConnection> connections;  ///< by their ids
        std::map<uint16_t, uint32_t> places;      ///< by port
    };
    Kept kept() const;
    /// `open`: those of them that were open.
    void restore(const Kept& kept, const ConnectionTable::Map& open);

    // --- for whoever leads next
    ConnectionTable::Map open() const;
    const ConnectionTable::LastNumbers& last_numbers() const { return last_numbers_; }
    ConnectionTable table() const { return {open(), last_numbers_}; }
    /// From a checkpoint: what was decided before it.
    void restore(ConnectionTable::LastNumbers last) { last_numbers_ = std::move(last); }

    // --- what there is room for
    bool place_for_client(uint16_t port) const;
    /// The server has as many connections as it may have, whatever its ports have places for.
    bool full() const { return all_.size() >= timebubble::kMaxClients; }
    /// Bytes of input that may be proposed, or promised, for the connection now.
    uint64_t input_room(uint64_t connection) const;

    size_t connections() const { return all_.size(); }
    /// What the own domain has sent on it; 0 where there is none.
    uint64_t sent(uint64_t connection) const {
        const Connection* const one = find(connection);
        return one ? one->sent : 0;
    }
    uint64_t input_bytes() const { return common_used_ * timebubble::kInputChunkBytes; }
    /// Calls `visit` with each decided connection that nobody has reset.
    template <typename Visit>
    void each_open(Visit visit) const {
        for (const auto& [id, one] : all_) {
            if (one.is_decided && !one.reset_decided && !one.reset_proposed) visit(id);
        }
    }

  private:
    struct Connection {
        uint16_t port = 0;
        bool is_decided = false;
        bool accepted = false;
        bool reset_decided = false;
        bool reset_proposed = false;
        uint64_t received = 0;                                ///< decided
        uint64_t proposed = 0;                                ///< end of it, by this primary
        uint64_t promised = 0;                                ///< end of what may still come
        uint64_t consumed = 0;                                ///< as the domain has reported
        uint64_t sent = 0;                                    ///< put out by the own domain
        uint64_t window_end = timebubble::kFirstWindowBytes;  ///< decided
        bool input_ended = false;                             ///< decided
        bool output_ended = false;                            ///< by the own domain
    };
    struct Port {
        uint32_t places = 0;
        uint32_t waiting = 0;  ///< connections not accepted
    };
    static uint64_t end(const Connection& one);
    static uint64_t common(const Connection& one);
    Connection* find(uint64_t connection) const;
    template <typename Change>
    void change(uint64_t connection, Change how);
    void add(uint64_t connection, uint16_t port);
    void add_accepted(uint64_t connection);
    void remove(uint64_t connection);

    uint64_t common_limit_;  ///< chunks
    uint64_t common_used_ = 0;
    std::unordered_map<uint64_t, Connection> all_;
    /// What was asked for last is asked for again: a client's bytes cost some questions each.
    mutable uint64_t last_id_ = 0;
    mutable Connection* last_ = nullptr;
    std::map<uint16_t, Port> ports_;
    ConnectionTable::LastNumbers last_numbers_;
};

}  // namespace crane::proxy
