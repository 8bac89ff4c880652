// The sockets that clients' datagrams come to and leave from: reading and writing, nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "timebubble/batch.hpp"

namespace crane::proxy {

/// What a socket for datagrams has set before it is bound. `family`: AF_INET or AF_INET6.
void prepare_datagram_socket(int fd, int family);

/// Reads what has come, up to some number; `taken` gets a call's payload each (DatagramPayload and the
/// bytes), but for `receiver`. `port`: as the server knows it.
void receive_datagrams(int fd, uint16_t port, const std::function<void(std::string payload)>& taken);

/// Sends to the peer that `to` names, from where it had sent to. False: the network takes it not now, or not
/// at all.
bool send_datagram(int fd, const timebubble::DatagramPayload& to, std::string_view bytes);

}  // namespace crane::proxy
