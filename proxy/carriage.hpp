// What a replica and the primary say to each other about the clients that are attached to the replica.
//
// A client stays attached to the replica that accepted it, whoever leads. What it sends is carried to the
// primary and proposed there; what the server sends to it comes out of the replica's own domain, since every
// domain puts out the same bytes. Input is named by connection and offset, and every replica knows from the
// log how much of it is decided. So it can be carried again, to the same primary or the next, and is taken
// once: a change of primary resets no client of a replica that survives it.
//
// A conversation begins with the primary's welcome. The replica then names all its clients (open, resume,
// listed), carries what is not decided yet, and goes on from there. A welcome is repeated whenever anything
// may have been lost; each statement gives positions and not steps, so that hearing it twice changes nothing.
// Connections of a replica that it does not name are of nobody, and the primary closes them by decision.
#pragma once

#include <cstdint>
#include <string_view>

#include "timebubble/batch.hpp"
#include "timebubble/limits.hpp"

namespace crane::proxy {

/// A connection's id: the replica its client is attached to, and a number that rises with each of its
/// connections for ever. 0 is no connection.
constexpr unsigned kConnectionNumberBits = 48;
constexpr uint64_t kLastConnectionNumber = (uint64_t{1} << kConnectionNumberBits) - 1;
constexpr uint64_t connection_id(uint32_t replica, uint64_t number) {
    return uint64_t{replica & 0xff} << kConnectionNumberBits | number;
}
constexpr uint32_t attached_replica(uint64_t connection) {
    return static_cast<uint32_t>(connection >> kConnectionNumberBits);
}
constexpr uint64_t connection_number(uint64_t connection) {
    return connection & kLastConnectionNumber;
}

/// Input credit that each connection has at once, which takes nothing of the domain's common stock, and the
/// most.
constexpr uint64_t kFirstCreditBytes = timebubble::kOwnChunks * timebubble::kInputChunkBytes;
constexpr uint64_t kLargestCreditBytes = 256 * 1024;

/// Said to the primary by the replica that clients are attached to. In order of the connections' numbers
/// after each welcome.
class ToPrimary {
  public:
    /// A client whose connection is not known to be decided. `copy`: its output is wanted from the primary.
    virtual void open(uint64_t connection, const timebubble::ConnectPayload& addresses, bool copy) = 0;
    /// A client whose connection is decided and that has taken so much output, after a welcome, or when it
    /// is to get its output from elsewhere.
    virtual void resume(uint64_t connection, bool copy, uint64_t taken) = 0;
    /// All have been named.
    virtual void listed() = 0;
    /// How much input may be said for it now, where so much of the primary's credit is left.
    virtual uint64_t room(uint64_t connection, uint64_t credit) const = 0;
    virtual void input(uint64_t connection, uint64_t offset, std::string_view bytes) = 0;
    /// The client sends no more than `offset` bytes.
    virtual void input_end(uint64_t connection, uint64_t offset) = 0;
    /// The client has taken `total` bytes of output.
    virtual void taken(uint64_t connection, uint64_t total) = 0;
    virtual void gone(uint64_t connection) = 0;
    /// `bytes` of credit that will not be used.
    virtual void credit_back(uint64_t connection, uint64_t bytes) = 0;

  protected:
    ~ToPrimary() = default;
};

/// Said by the primary to such a replica.
class FromPrimary {
  public:
    /// Name your clients; new ones are numbered from `next_number` on, or higher.
    virtual void welcome(uint64_t next_number) = 0;
    /// The connection is known; its input up to `offset` has been proposed. Without credit yet.
    virtual void accepted(uint64_t connection, uint64_t offset) = 0;
    /// So much more input may be said.
    virtual void credit(uint64_t connection, uint64_t more) = 0;
    /// Output of a connection named with `copy`, first of all where it begins (without bytes); then its end,
    /// and what the server made of it.
    virtual void copied(uint64_t connection, uint64_t offset, std::string_view bytes) = 0;
    virtual void copied_end(uint64_t connection, uint64_t offset) = 0;
    virtual void copied_close(uint64_t connection, uint64_t offset, bool reset) = 0;

  protected:
    ~FromPrimary() = default;
};

}  // namespace crane::proxy
