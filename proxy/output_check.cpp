#include "proxy/output_check.hpp"

#include "proxy/attached_clients.hpp"
#include "proxy/ingress.hpp"
#include "proxy/live_server.hpp"

namespace crane::proxy {

using timebubble::OutputKind;

const char* impossible(const timebubble::OutputHeader& header, std::string_view payload,
                       const AttachedClients& clients, const Ingress& ingress, const ServerPorts& ports) {
    if (header.kind == OutputKind::kSend) {
        const bool fits = clients.has_window(header.connection, payload.size()) &&
                          ingress.has_window(header.connection, payload.size());
        return fits ? nullptr : "more is sent to a client than its window allows";
    }
    if (header.kind == OutputKind::kListen && !(header.flags & timebubble::kListenChanged))
        return ports.full() ? "it listens on more sockets than it can have" : nullptr;
    return nullptr;
}

}  // namespace crane::proxy
