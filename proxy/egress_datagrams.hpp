// Datagrams of the server to those who have sent it none: they leave from sockets of the primary's, one for
// each of the server's ports, and what comes back to these is as a client's. As with UDP anywhere nothing is
// promised.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "timebubble/transport.hpp"

struct event_base;

namespace crane::proxy {

class EgressDatagrams {
  public:
    static constexpr size_t kMostSockets = 256;

    /// `received`: DatagramPayload and the bytes.
    EgressDatagrams(event_base* base, std::function<void(std::string payload)> received);
    ~EgressDatagrams();
    EgressDatagrams(const EgressDatagrams&) = delete;
    EgressDatagrams& operator=(const EgressDatagrams&) = delete;

    /// False: the network takes it not now, or not at all.
    bool send(const timebubble::DatagramRecord& to, std::string_view bytes);
    /// The server has closed its port, and with 0 all of them.
    void close(uint16_t port = 0);
    /// Lets go of sockets that nothing has left from for a minute; call now and then.
    void reap(uint64_t now_ns);
    size_t size() const { return sockets_.size(); }

  private:
    struct Socket;
    using Key = std::pair<uint16_t, uint16_t>;  ///< the server's port, the family
    Socket* socket_for(const Key& key);
    void drop_oldest();

    event_base* base_;
    std::function<void(std::string payload)> received_;
    std::map<Key, std::unique_ptr<Socket>> sockets_;
};

}  // namespace crane::proxy
