// A client as the primary or a relaying backup sees it: a TCP connection here, or a stream from another
// replica.
//
// Ownership: an endpoint looks after itself. Its user lets it go by exactly one of close() and reset(), after
// which the user hears nothing more and must not touch it; after EndpointUser::on_gone() it has gone by
// itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace crane::proxy {

class EndpointUser {
  public:
    /// How many bytes may come from the client now. No endpoint brings more.
    virtual uint64_t input_room() const = 0;
    /// Bytes from the client. They are always taken.
    virtual void on_input(std::string_view bytes) = 0;
    /// `bytes` of what was promised to it (see allow_input) will not come.
    virtual void on_input_returned(uint64_t bytes) { (void)bytes; }
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
    /// There is room for `room` bytes beyond what was promised already; 0 stops the input. Input starts
    /// stopped. Returns how much of it the endpoint takes for good, so that nobody else may have it: a client
    /// here is read as far as there is room when it speaks, but a client elsewhere must be given credit
    /// beforehand.
    virtual uint64_t allow_input(uint64_t room) = 0;
    virtual void send(std::string_view bytes) = 0;
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
