// A client as the replica sees that it is attached to: a TCP connection.
//
// Ownership: an endpoint looks after itself. Its user lets it go by exactly one of close() and reset(), after
// which the user hears nothing more and must not touch it; after EndpointUser::on_gone() it has gone by
// itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "timebubble/transport.hpp"

namespace crane::proxy {

class EndpointUser {
  public:
    /// How many bytes may come from the client now. No endpoint brings more.
    virtual uint64_t input_room() const = 0;
    /// Bytes from the client. They are always taken.
    virtual void on_input(std::string_view bytes) = 0;
    /// The client will send no more.
    virtual void on_input_end() = 0;
    /// `bytes` more have been taken by the client's side.
    virtual void on_taken(size_t bytes) = 0;
    /// Reset or failed: the endpoint is no more.
    virtual void on_gone() = 0;

  protected:
    ~EndpointUser() = default;
};

class Endpoint {
  public:
    virtual void set_user(EndpointUser* user) = 0;
    /// Input starts stopped. While it is allowed the client is read as far as its user has room when it
    /// speaks.
    virtual void allow_input(bool allowed) = 0;
    virtual void send(std::string_view bytes) = 0;
    /// How the server wants a silent client to be found; what it has not set stays as configured.
    virtual void probe(const timebubble::ProbeRecord& wanted) = 0;
    /// FIN to the client after all that was sent.
    virtual void finish() = 0;
    /// Lets go: flushes, ends, and reads to the client's end so that no byte is lost.
    virtual void close() = 0;
    /// Lets go at once, RST to the client.
    virtual void reset() = 0;

  protected:
    ~Endpoint() = default;
};

}  // namespace crane::proxy
