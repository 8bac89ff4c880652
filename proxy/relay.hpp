// A backup's clients, served by the primary: their connections are carried over the links between the
// replicas.
//
// Frames, several in one message: FrameHeader + payload. A stream is opened by the backup with the client's
// real addresses and the view it means; the primary's first credit says it is accepted, and only then is the
// client read. Either direction sends no more than the other has given credit for, so nothing here is
// unbounded. A stream lives in one view: when the primary changes or the link breaks, a client whose stream
// was accepted is reset, one that was not yet goes back to wait.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "proxy/client_connection.hpp"
#include "proxy/endpoint.hpp"

namespace crane::proxy {

constexpr uint64_t kRelayInputCredit = 256 * 1024;
constexpr uint64_t kRelayOutputCredit = 1024 * 1024;

class Relay {
  public:
    using Send = std::function<bool(uint32_t to, const std::string& message)>;
    /// On the primary: a client of another replica.
    using Opened = std::function<void(Endpoint*, const timebubble::ConnectPayload&)>;
    /// On the backup: the primary did not take it; try elsewhere.
    using Returned = std::function<void(ClientConnection*)>;

    Relay(Send send, Opened opened, Returned returned);
    ~Relay();

    /// Backup: carries `client` to the primary.
    void forward(ClientConnection* client, uint32_t primary, uint64_t view);
    /// Who leads has changed. Streams of other views end.
    void set_view(uint64_t view, bool leading);
    void on_message(uint32_t from, std::string_view message);
    void on_link(uint32_t peer, bool up);
    /// Sends what was gathered, as far as the links take it; at the end of each turn of the loop.
    void end_turn();

    size_t outgoing() const { return outgoing_.size(); }
    size_t incoming() const { return incoming_.size(); }

  private:
    struct Outgoing;
    class Incoming;
    struct Link {
        std::string gathered;
        size_t taken = 0;   ///< of `gathered`, into `ready` or sent
        std::string ready;  ///< a message that the link had no room for yet
        uint64_t incarnation = 0;
        uint64_t sequence = 0;
        uint64_t peer_incarnation = 0;
        uint64_t peer_sequence = 0;
    };
    using Key = std::pair<uint32_t, uint64_t>;

    void frame(uint32_t to, uint8_t type, uint64_t stream, std::string_view payload);
    void frame_number(uint32_t to, uint8_t type, uint64_t stream, uint64_t number);
    void handle_primary(uint32_t from, uint8_t type, uint64_t stream, std::string_view payload);
    void handle_backup(uint32_t from, uint8_t type, uint64_t stream, std::string_view payload);
    void end_outgoing(uint64_t stream);
    void drop_streams(uint32_t peer);
    void make_ready(Link& link);

    Send send_;
    Opened opened_;
    Returned returned_;
    uint64_t view_ = 0;
    bool leading_ = false;
    uint64_t next_stream_;
    uint64_t next_incarnation_;
    std::map<uint32_t, Link> links_;
    std::unordered_map<uint64_t, std::unique_ptr<Outgoing>> outgoing_;
    std::map<Key, std::unique_ptr<Incoming>> incoming_;
};

}  // namespace crane::proxy
