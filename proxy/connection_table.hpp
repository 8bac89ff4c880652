// Every open connection, as the decided sequence and this replica's own domain tell of it. Pure: each replica
// keeps it, so that whoever becomes primary knows where each connection stands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>

#include "timebubble/batch.hpp"
#include "timebubble/limits.hpp"
#include "timebubble/transport.hpp"

namespace crane::proxy {

struct ConnectionState {
    uint64_t input = 0;                                   ///< bytes decided
    uint64_t sent = 0;                                    ///< bytes put out by this replica's domain
    uint64_t window_end = timebubble::kFirstWindowBytes;  ///< decided
    bool input_ended = false;
};

class ConnectionTable {
  public:
    using Map = std::unordered_map<uint64_t, ConnectionState>;
    /// The highest number ever decided for a connection of each replica to each of the server's ports:
    /// connects to one port are decided in the order of their numbers, so what is not above it has come, and
    /// perhaps gone.
    using LastNumbers = std::map<std::pair<uint32_t, uint16_t>, uint64_t>;

    /// A call of a decided batch, in order.
    void decided(const timebubble::Call& call);
    /// A record of the own domain's output.
    void output(const timebubble::OutputHeader& header, std::string_view payload);

    /// Another server begins, who knows none of them.
    void forget_open() { open_.clear(); }
    /// From a checkpoint: what was decided before it.
    void restore(LastNumbers last, Map open = {}) {
        last_numbers_ = std::move(last);
        open_ = std::move(open);
    }

    const Map& open() const { return open_; }
    const LastNumbers& last_numbers() const { return last_numbers_; }

  private:
    Map open_;
    LastNumbers last_numbers_;
};

/// The number that a payload of 8 bytes holds. False: it is not of that size.
bool read_number(std::string_view payload, uint64_t& number);

}  // namespace crane::proxy
