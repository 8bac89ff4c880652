// Who administers this replica from elsewhere: at [admin] listen, over TLS, with a certificate of the
// cluster's own authority that says what its holder may do. Frames (paxos/link/frame.hpp) of type App: a
// question is one JSON object {"cmd": …} as on the control socket, and so is the answer; Refused says why
// there is none.
//
// Rules kept here:
//   - nothing is read as a question before the certificate is accepted. `read` asks and changes nothing,
//     `operate` does all; a replica's own certificate is as good as `operate`, one without a role is refused;
//   - nobody holds up the loop or fills memory: so many connections, so many questions a second, small ones;
//     who does not read its answers, says nothing for long or not who it is in time, is closed. When there
//     are too many of those, one goes who comes from where most of them come from (paxos/link/strangers.hpp);
//   - what is refused and what is ordered is in the log, with who it was.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "paxos/link/accept_pause.hpp"
#include "paxos/link/certificate.hpp"
#include "paxos/link/connection.hpp"
#include "paxos/link/refusal_log.hpp"
#include "paxos/link/tls.hpp"

struct event;
struct event_base;
struct evconnlistener;
struct sockaddr;

namespace crane::proxy {

/// What the holder of a certificate may do here.
paxos::OperatorRole role_of(const paxos::Identity& shown, const std::string& cluster);
/// Is the question one that changes nothing?
bool only_reads(const std::string& command);

class AdminServer {
  public:
    static constexpr size_t kMaxClients = 32;
    static constexpr size_t kMaxQuestionsPerS = 200;  ///< of all of them together
    static constexpr size_t kMaxQueuedBytes = 4 << 20;
    using Handler = std::function<nlohmann::json(const nlohmann::json& request)>;

    /// With the certificate that the links to the peers use. Throws std::runtime_error when nobody can listen
    /// there.
    AdminServer(event_base* base, const std::string& listen, std::shared_ptr<paxos::TlsContext> tls,
                const paxos::Identity& self, Handler handler);
    ~AdminServer();
    AdminServer(const AdminServer&) = delete;
    AdminServer& operator=(const AdminServer&) = delete;

  private:
    struct Client;

    static void on_accept(evconnlistener*, int fd, sockaddr* from, int, void* self);
    void accept(int fd, const sockaddr* from);
    void make_room();
    bool on_frame(Client& client, paxos::FrameType type, std::string_view payload);
    bool admit(Client& client);
    nlohmann::json answer(const Client& client, std::string_view question);
    bool too_many();
    void lost(Client& client, const std::string& reason);
    void drop(Client& client);

    event_base* const base_;
    const paxos::Identity self_;
    const Handler handler_;
    const std::shared_ptr<paxos::TlsContext> tls_;
    evconnlistener* listener_ = nullptr;
    std::unique_ptr<paxos::AcceptPause> pause_;
    event* reaper_ = nullptr;
    paxos::RefusalLog refusals_;
    std::mt19937_64 lots_;
    uint64_t second_ = 0;
    size_t asked_ = 0;  ///< in that second
    std::vector<std::unique_ptr<Client>> clients_;
    std::vector<std::unique_ptr<Client>> graveyard_;  ///< closed, perhaps from their own callbacks
};

}  // namespace crane::proxy
