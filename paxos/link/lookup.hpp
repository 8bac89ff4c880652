// From a peer's name to its address.
//
// getaddrinfo() asks the files and servers that the machine is set up for, and may wait for them for many
// seconds: names are looked up in a thread of their own, so that the event loop goes on.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "paxos/link/peer_address.hpp"

struct addrinfo;
struct event;
struct event_base;

namespace crane::paxos {

/// Looks the address up at once.
struct AddressInfo {
    addrinfo* list = nullptr;  ///< not empty when there is no error
    int code = 0;              ///< as getaddrinfo has it
    std::string error;
    AddressInfo(const PeerAddress& address, bool passive);
    ~AddressInfo();
    AddressInfo(const AddressInfo&) = delete;
    AddressInfo& operator=(const AddressInfo&) = delete;
    size_t count() const;  ///< a name may have several addresses
    const addrinfo& at(size_t index) const;
    bool repeats(size_t index) const;  ///< one before it
};

class Lookup {
  public:
    using Handler = std::function<void(const AddressInfo&)>;
    /// `on_found` is called once, from the event loop, found or not. Throws std::system_error when no thread
    /// can be had.
    Lookup(event_base* base, const PeerAddress& address, Handler on_found);
    ~Lookup();  ///< on_found is not called any more; the thread ends by itself
    Lookup(const Lookup&) = delete;
    Lookup& operator=(const Lookup&) = delete;

  private:
    struct Job;
    static void on_done(int, short, void* self);

    std::shared_ptr<Job> job_;  ///< shared with the thread
    event* done_;
    Handler on_found_;
};

}  // namespace crane::paxos
