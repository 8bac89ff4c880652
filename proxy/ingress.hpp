// The primary's side of all clients, wherever they are attached: turns what is said to it into client socket
// calls for the log, gives credit for input as the domain has room, and moves the send windows. Pure: time is
// handed in.
//
// Each statement names its position, and what is proposed already is not taken again. When a replica takes
// over, it starts from what is decided (ConnectionTable, DomainAccount) and welcomes every replica;
// connections that the replica they belong to does not name, or of a replica whose link stays down, are
// closed by a decided reset.
//
// Bounds kept: so many clients are known, and the others named again when there is room; a client is
// connected when the domain has a place for it (DomainAccount), and waits unread until then; input comes only
// as far as the domain has room for it; the server is given windows only as far as the stock of output lasts
// (OutputWindows).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <unordered_map>

#include "proxy/batcher.hpp"
#include "proxy/carriage.hpp"
#include "proxy/connection_table.hpp"
#include "proxy/domain_account.hpp"
#include "proxy/output_windows.hpp"

namespace crane::proxy {

class Ingress {
  public:
    /// Where answers to a replica go; null: nowhere now.
    using Reply = std::function<FromPrimary*(uint32_t replica)>;

    struct Settings {
        uint32_t self;
        uint64_t output_bytes;      ///< the stock of output that clients have not taken
        uint64_t link_patience_ns;  ///< a replica whose link is down for longer has lost its clients
    };

    Ingress(const Settings& settings, Batcher& batcher, DomainAccount& account, Reply reply);

    /// This replica is primary, and `table` is what was decided before it.
    void lead(const ConnectionTable& table, uint64_t now_ns);
    /// The own domain has come as far as the log was then: what the server has closed by itself is known, and
    /// what is of nobody may be closed.
    void settle();
    bool settled() const { return settled_; }
    void stop();
    bool leading() const { return leading_; }

    /// Begins the conversation with a replica, or begins it anew: something may have been lost.
    void welcome(uint32_t replica);
    void on_link(uint32_t replica, bool up, uint64_t now_ns);
    /// Gives up connections of replicas whose link stays down.
    void tick(uint64_t now_ns);
    /// A record of the own domain's output; the account has seen it already. Throws ImpossibleOutput.
    void on_output(const timebubble::OutputHeader& header, std::string_view payload);
    /// What clients have not taken yet of connections that the server has closed.
    void set_closing(uint64_t bytes) { windows_.set_closing(bytes); }
    /// The server has ended: there is nothing left to propose for, and whoever has the copy hears of it.
    void server_ended();

    /// What a replica says (ToPrimary).
    void open(uint32_t replica, uint64_t id, const timebubble::ConnectPayload& addresses, bool copy);
    void resume(uint32_t replica, uint64_t id, bool copy, uint64_t taken);
    void listed(uint32_t replica);
    uint64_t room(uint64_t id) const;
    void input(uint32_t replica, uint64_t id, uint64_t offset, std::string_view bytes);
    void input_end(uint32_t replica, uint64_t id, uint64_t offset);
    void taken(uint32_t replica, uint64_t id, uint64_t total);
    void gone(uint32_t replica, uint64_t id);
    void credit_back(uint32_t replica, uint64_t id, uint64_t bytes);

    size_t size() const { return live_.size(); }
    size_t elsewhere() const;  ///< of them, attached to other replicas
    /// The same, as of the last tick(), or since.
    bool any_elsewhere() const { return any_elsewhere_; }
    size_t held_back() const;
    uint64_t output_bytes() const { return windows_.used(); }

  private:
    struct Connection {
        timebubble::ConnectPayload addresses{};
        bool connected = false;  ///< proposed; until then it is held back
        uint64_t waits_as = 0;   ///< its place in held_back_
        bool named = false;      ///< by its replica, since the last welcome
        bool copy = false;
        bool input_ended = false;
        bool output_ended = false;
        bool windowed = false;  ///< `window` is counted
        uint64_t input = 0;     ///< bytes proposed
        uint64_t promised = 0;  ///< input that its replica may still say
        uint64_t credit_size = kFirstCreditBytes;
        OutputWindow window;
    };
    struct Peer {
        bool up = false;
        bool listed = false;       ///< has named its clients since its welcome
        bool turned_away = false;  ///< not all of them were taken
        uint64_t down_since_ns = 0;
    };
    using Live = std::unordered_map<uint64_t, Connection>;
    /// Connections to one of the server's ports that it has no place for yet, by their order of arrival.
    using HeldBack = std::map<uint64_t, uint64_t>;

    Connection* find(uint32_t replica, uint64_t id);
    void close_all();
    void take_name(uint64_t id, Connection& connection, bool copy, uint64_t taken);
    void name_again();
    void connect_waiting();
    void connect(uint64_t id, Connection& connection);
    void give_credit(uint64_t id, Connection& connection);
    void raise_window(uint64_t id, Connection& connection);
    void copy_output(const timebubble::OutputHeader& header, std::string_view payload,
                     const Connection& connection);
    void reset_unnamed(uint32_t replica);
    void reset(uint64_t id);
    void forget(Live::iterator at);
    template <typename Chosen>
    void reset_those(const Chosen& chosen);

    Settings settings_;
    Batcher& batcher_;
    DomainAccount& account_;
    Reply reply_;
    bool leading_ = false;
    bool any_elsewhere_ = true;
    bool settled_ = false;
    OutputWindows windows_;
    Live live_;
    std::map<uint16_t, HeldBack> held_back_;
    uint64_t arrivals_ = 0;
    ConnectionTable::LastNumbers last_numbers_;  ///< proposed
    std::map<uint32_t, Peer> peers_;
};

}  // namespace crane::proxy
