// The clients that are attached to this replica, whoever leads. Pure: no clock, no socket but through
// Endpoint.
//
// What a client sends is held here until it is decided, and said to the primary as far as that gives credit;
// what the server sends to it comes out of the own domain, or from the primary where the own domain is behind
// (`copy`). Each can begin where the other ends, as output is named by its offset: so a client changes to the
// copy before the own domain stands still, and back when that has caught up. Whose copy begins behind a gap
// waits for the own domain to fill it. A client that is not named to a primary yet waits, and is not read.
//
// Bound kept: input is read only with credit, and only while what is held for the client, and for all of
// them, is not too much: the primary may decide and take it long before that is delivered here, where the
// domain lags.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proxy/carriage.hpp"
#include "proxy/endpoint.hpp"
#include "timebubble/transport.hpp"

namespace crane::proxy {

class AttachedClients final : public FromPrimary {
  public:
    /// `own_output`: the own domain puts out what clients are to get (not so in mode proxy).
    /// `wants_copy`: would a client that comes now be served late by the own domain?
    /// `held_limit`: bytes of input held, beyond each client's first credit.
    AttachedClients(uint32_t self, bool own_output, std::function<bool()> wants_copy,
                    uint64_t held_limit = UINT64_MAX);
    static constexpr uint64_t kMostHeldBytes = 4 * kLargestCreditBytes;  ///< of one client
    ~AttachedClients();
    AttachedClients(const AttachedClients&) = delete;
    AttachedClients& operator=(const AttachedClients&) = delete;

    /// A new client. It is reset if no primary has taken it by then.
    void attach(Endpoint* endpoint, const timebubble::ConnectPayload& addresses, uint64_t give_up_ns);
    /// Who leads has changed, or the link to it has gone: nothing is said until the next welcome.
    void lost_primary() { primary_ = nullptr; }
    /// The one to name the clients to; its welcome follows.
    void set_primary(ToPrimary* primary) { primary_ = primary; }
    /// Resets clients that have waited too long, and gives back what silent ones do not use; call now and
    /// then.
    void reap(uint64_t now_ns);

    void on_decided(const timebubble::Call& call);
    /// A record of the own domain's output. Throws ImpossibleOutput.
    void on_output(const timebubble::OutputHeader& header, std::string_view payload);

    /// The server has ended: what was sent is delivered, then the clients' connections end.
    void close_all();
    /// Server number `generation` is decided: who is here now is a client of an earlier one, which may still
    /// run here.
    void server_replaced(uint64_t generation);
    /// The servers before number `generation` have ended here, too: as close_all(), for their clients.
    void close_clients_before(uint64_t generation);
    void reset_all();
    /// The own domain stands still, or is about to: all get the primary's copy, and later ones do. Else those
    /// that the own domain has caught up with get its output again; call now and then.
    void want_copies(bool wanted);
    /// Nobody waits for the own domain, as far as is known.
    bool copies_joined() const;
    /// Call now and then. Where the own domain stands still, those who wait for it at each of kUnservedLooks
    /// are reset, and come again to the primary's copy.
    void look_for_unserved(bool stands);
    static constexpr uint32_t kUnservedLooks = 3;

    size_t size() const { return named_.size() + waiting_.size(); }
    size_t waiting() const { return waiting_.size(); }
    uint64_t held_bytes() const { return held_bytes_; }
    uint64_t bytes_sent() const { return bytes_sent_; }

    void welcome(uint64_t next_number) override;
    void accepted(uint64_t connection, uint64_t offset) override;
    void credit(uint64_t connection, uint64_t more) override;
    void copied(uint64_t connection, uint64_t offset, std::string_view bytes) override;
    void copied_end(uint64_t connection, uint64_t offset) override;
    void copied_close(uint64_t connection, uint64_t offset, bool reset) override;

  private:
    struct Client;
    using Named = std::unordered_map<uint64_t, std::unique_ptr<Client>>;
    Client* find(uint64_t connection);
    void name_new(std::unique_ptr<Client> client);
    void name(Client& client);
    void change_source(Client& client, bool copy);
    void name_all();
    void end(uint64_t connection, bool reset);
    void leave(std::vector<uint64_t> connections, bool reset);
    std::unique_ptr<Client> take(Client& client);

    uint32_t self_;
    bool own_output_;
    std::function<bool()> wants_copy_;
    uint64_t held_limit_;
    ToPrimary* primary_ = nullptr;
    uint64_t next_number_ = 1;
    Named named_;  ///< by connection
    std::list<std::unique_ptr<Client>> waiting_;
    bool copies_wanted_ = false;
    bool any_copies_ = false;     ///< perhaps
    bool any_unserved_ = false;   ///< at the last look
    std::vector<uint64_t> rich_;  ///< have been given more than the first credit
    uint64_t held_bytes_ = 0;
    uint64_t bytes_sent_ = 0;
};

}  // namespace crane::proxy
