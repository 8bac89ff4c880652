// What a domain that keeps the rules never puts out, however well formed its records are
// (proxy/domain_link.hpp looks at that). It may be in an attacker's hands, so what craned holds for it is
// bounded by what is checked here and not by what it does. Pure.
#pragma once

#include <string_view>

#include "timebubble/transport.hpp"

namespace crane::proxy {

class AttachedClients;
class Ingress;
class ServerPorts;

/// What is wrong with the record; nullptr: nothing. Before any of the three has seen it.
const char* impossible(const timebubble::OutputHeader& header, std::string_view payload,
                       const AttachedClients& clients, const Ingress& ingress, const ServerPorts& ports);

}  // namespace crane::proxy
