#include "proxy/connection_table.hpp"

#include <string.h>

#include <algorithm>

#include "proxy/carriage.hpp"

namespace crane::proxy {

using timebubble::CallKind;
using timebubble::OutputKind;

bool read_number(std::string_view payload, uint64_t& number) {
    if (payload.size() != sizeof(number)) return false;
    memcpy(&number, payload.data(), sizeof(number));
    return true;
}

void ConnectionTable::decided(const timebubble::Call& call) {
    if (call.kind == CallKind::kConnect) {
        timebubble::ConnectPayload addresses;
        if (call.payload.size() != sizeof(addresses)) return;
        memcpy(&addresses, call.payload.data(), sizeof(addresses));
        open_.try_emplace(call.connection);
        uint64_t& last = last_numbers_[{attached_replica(call.connection), addresses.listen_port}];
        last = std::max(last, connection_number(call.connection));
        return;
    }
    const auto found = open_.find(call.connection);
    if (found == open_.end()) return;  // closed by the server meanwhile
    uint64_t number = 0;
    switch (call.kind) {
        case CallKind::kSend:
            found->second.input += call.payload.size();
            break;
        case CallKind::kShutdown:
            found->second.input_ended = true;
            break;
        case CallKind::kWindow:
            if (read_number(call.payload, number))
                found->second.window_end = std::max(found->second.window_end, number);
            break;
        case CallKind::kReset:
            open_.erase(found);
            break;
        default:
            break;
    }
}

void ConnectionTable::output(const timebubble::OutputHeader& header, std::string_view payload) {
    const auto found = open_.find(header.connection);
    if (found == open_.end()) return;
    if (header.kind == OutputKind::kSend) found->second.sent += payload.size();
    if (header.kind == OutputKind::kClose) open_.erase(found);
}

}  // namespace crane::proxy
