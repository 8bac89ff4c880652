// Carries what replicas and the primary say to each other about attached clients (carriage.hpp) over the
// links between the daemons, and between the two halves of the primary itself without a link.
//
// Frames, several in one message: MessageHeader, then FrameHeader + payload each. A message belongs to the
// conversation that its welcome began (view and round); others are not listened to. A link that has lost
// something shows by a gap in the numbers of its messages, and then the conversation begins anew.
//
// Bounds kept: what waits for a link is bounded by the credit and the windows of the connections.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "proxy/attached_clients.hpp"
#include "proxy/ingress.hpp"

namespace crane::proxy {

class Carrier {
  public:
    /// False: the link takes nothing now.
    using Send = std::function<bool(uint32_t to, std::string message)>;

    Carrier(uint32_t self, AttachedClients& clients, Send send);
    ~Carrier();
    Carrier(const Carrier&) = delete;
    Carrier& operator=(const Carrier&) = delete;

    /// The primary's half; before anything else is called.
    void set_ingress(Ingress* ingress) { ingress_ = ingress; }
    /// Who leads has changed. The primary's half is told by its owner.
    void set_view(uint64_t view, uint32_t leader);
    /// The link to a peer is up, or gone.
    void on_link(uint32_t peer, bool up);
    void on_message(uint32_t from, std::string_view message);
    /// The primary has taken over, and takes what is carried from here.
    bool carries() const { return primary_ != 0; }
    /// Where the primary's half answers.
    FromPrimary* reply_to(uint32_t replica);
    /// Sends what was gathered, as far as the links take it; at the end of each turn of the loop.
    void end_turn();

  private:
    class Local;
    class Up;
    class Down;
    class Gathered;
    struct Link;
    /// Which conversation: the primary's view, and the number of its welcome to this replica.
    struct Conversation {
        uint64_t view = 0;
        uint64_t round = 0;
        bool operator==(const Conversation&) const = default;
    };

    Link& link(uint32_t peer);
    void handle_as_primary(uint32_t from, uint8_t type, uint8_t flags, uint64_t connection,
                           std::string_view payload);
    void handle_as_attached(uint8_t type, uint64_t connection, std::string_view payload);
    void welcomed_by(uint32_t primary, const Conversation& said, uint64_t next_number);
    void lost_something(uint32_t peer);
    void flush(uint32_t peer, Gathered& gathered, const Conversation& about, Link& link);

    uint32_t self_;
    AttachedClients& clients_;
    Send send_;
    Ingress* ingress_ = nullptr;
    uint64_t view_ = 0;
    uint32_t leader_ = 0;
    uint32_t primary_ = 0;  ///< whose welcome was heard, in this view
    std::unique_ptr<Local> local_;
    std::map<uint32_t, std::unique_ptr<Link>> links_;
};

}  // namespace crane::proxy
