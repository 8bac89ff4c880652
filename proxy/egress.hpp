// Connections from the server to the outside, and its questions for names: what the domain has asked for,
// what is decided of it, and at the primary the connections themselves. Pure: sockets come as Endpoints.
//
// Every replica's domain asks for the same in the same order, so every replica knows what is open; the
// primary alone does it, and proposes what comes of it as calls. Rules kept here:
//   - what is asked for and not answered by the log is done by whoever leads, once by each who does;
//   - a connection lives at the primary that made it: a new one closes all that are open by decided resets;
//   - what the server sends goes out from the domain where the connection is: one that replays, or another
//     replica's, sends nothing;
//   - input comes only as far as the domain has room for it (DomainAccount), and the server is given windows
//     only as far as the stock for them lasts (OutputWindows).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/batcher.hpp"
#include "proxy/connection_table.hpp"
#include "proxy/domain_account.hpp"
#include "proxy/egress_rules.hpp"
#include "proxy/endpoint.hpp"
#include "proxy/output_windows.hpp"
#include "timebubble/transport.hpp"

namespace crane::proxy {

/// What a domain has asked of the outside and no call has answered.
struct EgressAsked {
    uint64_t id = 0;
    bool is_name = false;
    timebubble::EgressRecord to{};  ///< of a connection
    std::string name;
};

/// All that a replica has to know of it beside the open connections.
struct EgressKept {
    uint64_t seen = 0;  ///< the number of the last that was asked for
    std::vector<EgressAsked> asked;
};

class Egress {
  public:
    struct Ways {
        /// Begins to connect; connected() or failed() follows, unless it is given up.
        std::function<void(uint64_t id, const timebubble::EgressRecord& to)> dial;
        /// Begins to look the name up; resolved() follows.
        std::function<void(uint64_t id, const std::string& name)> resolve;
        /// Gives up either.
        std::function<void(uint64_t id)> give_up;
        std::function<void(const std::string&)> tell;  ///< for the log
    };
    /// `stock_bytes`: of output that the outside has not taken.
    Egress(std::vector<EgressRule> allowed, uint64_t stock_bytes, Batcher& batcher, DomainAccount& account,
           Ways ways);
    ~Egress();
    Egress(const Egress&) = delete;
    Egress& operator=(const Egress&) = delete;

    /// This replica is primary, and those are open by what was decided before it.
    void lead(const ConnectionTable::Map& open);
    /// It is so no more: its connections end, and what it has begun.
    void stop();
    /// Server number `generation` is decided: what an earlier one has asked for is for nobody.
    void began_server(uint64_t generation);
    /// The server has ended: what it has sent is delivered, and its connections end.
    void close_all();

    void on_decided(const timebubble::Call& call);
    /// A record of the own domain's output, which the account has seen. Throws ImpossibleOutput.
    void on_output(const timebubble::OutputHeader& header, std::string_view payload);

    /// It is connected. False: nobody wants it any more, and the endpoint is the caller's.
    bool connected(uint64_t id, Endpoint* endpoint, const timebubble::ConnectedPayload& call);
    void failed(uint64_t id, int error);
    /// `answer`: ResolvedPayload and its addresses.
    void resolved(uint64_t id, std::string_view answer);

    EgressKept kept() const;
    void restore(EgressKept kept);
    /// {"open", "connecting", "made", "failed", "refused", "names"}
    nlohmann::json json() const;

  private:
    struct Link;
    struct Asked {
        EgressAsked what;
        bool begun = false;  ///< by this primary, or answered and not decided
    };
    void ask(EgressAsked what);
    void begin(Asked& asked);
    void propose(uint64_t id, int error, const timebubble::ConnectedPayload* call);
    void raise_window(Link& link);
    void drop(uint64_t id);
    void on_link_output(Link& link, const timebubble::OutputHeader& header, std::string_view payload);

    std::vector<EgressRule> allowed_;
    Batcher& batcher_;
    DomainAccount& account_;
    Ways ways_;
    OutputWindows windows_;
    bool leading_ = false;
    uint64_t generation_ = 1;
    uint64_t seen_ = 0;
    std::map<uint64_t, Asked> asked_;
    std::set<uint64_t> answered_;  ///< decided, and the own domain has not asked yet
    std::map<uint64_t, std::unique_ptr<Link>> links_;
    std::set<std::string> told_;  ///< addresses that are not allowed
    uint64_t made_ = 0, failed_ = 0, refused_ = 0, names_ = 0;
};

}  // namespace crane::proxy
