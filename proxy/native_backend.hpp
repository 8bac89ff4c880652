// Mode "proxy": the server runs without scheduling and listens on real ports; craned opens a real loopback
// connection for each decided connect and plays the decided calls to it. What the server sends becomes output
// records, in the order in which it arrives here. One replica only: nothing makes two of them equal.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include "timebubble/batch.hpp"
#include "timebubble/limits.hpp"
#include "timebubble/transport.hpp"

struct event_base;

namespace crane::proxy {

class NativeBackend {
  public:
    using Output = std::function<void(const timebubble::OutputHeader&, std::string_view)>;

    NativeBackend(event_base* base, Output output);
    ~NativeBackend();

    /// The server listens: `actual_port` is where.
    void listen(const timebubble::ListenRecord& record);
    /// Plays a decided batch.
    void apply(uint64_t index, std::string_view batch);
    size_t connections() const { return all_.size(); }
    uint64_t admitted_index() const { return admitted_index_; }

  private:
    struct Connection;
    void call(const timebubble::Call& call);
    void emit(timebubble::OutputKind kind, uint16_t flags, uint64_t connection, std::string_view payload);
    int connect_to(uint16_t listen_port) const;
    void end(uint64_t connection, bool reset);

    event_base* base_;
    Output output_;
    /// By the port that the server asked for. A server may listen on it once for each family.
    std::map<uint16_t, timebubble::ListenRecord> listeners_;
    std::map<uint64_t, std::unique_ptr<Connection>> all_;
    uint64_t clock_ = 0;
    uint64_t admitted_index_ = 0;
};

}  // namespace crane::proxy
