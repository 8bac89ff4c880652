// What craned knows of a server that runs, as a checkpoint of it keeps that: with an image of the processes
// it is all that a replica needs to go on from there. Pure.
//
// It stands between two batches, where every thread of the server waits and all that it has put out is
// drained.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "proxy/connection_table.hpp"
#include "proxy/domain_account.hpp"
#include "proxy/domain_words.hpp"
#include "proxy/egress.hpp"
#include "timebubble/transport.hpp"

namespace crane::proxy {

/// The ports that the server listens on, in the order in which it began to.
class ServerPorts {
  public:
    /// Throws ImpossibleOutput.
    void on_output(const timebubble::OutputHeader& header, std::string_view payload);
    void clear() { records_.clear(); }
    void restore(std::vector<timebubble::ListenRecord> records) { records_ = std::move(records); }
    const std::vector<timebubble::ListenRecord>& records() const { return records_; }

  private:
    std::vector<timebubble::ListenRecord> records_;
};

struct LiveServer {
    uint64_t timestamp_ns = 0;  ///< of the last batch
    DomainWords words;
    std::vector<timebubble::ListenRecord> listeners;
    ConnectionTable::Map open;
    DomainAccount::Kept account;
    EgressKept egress;
};

nlohmann::json to_json(const LiveServer& server);
/// Throws nlohmann::json::exception.
LiveServer live_server_from(const nlohmann::json& json);

}  // namespace crane::proxy
