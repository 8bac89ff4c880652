// A batch: the unit that the replicas decide. It is the value of a log entry, and it is what the domain
// admits whole at one logical clock (crane.txt section 4; docs/design.md, "Admission").
//
// Layout, little endian: BatchHeader, then `calls` times CallHeader + payload, each padded to 8 bytes with
// zeros.
// The decoder trusts nothing: a batch that is not well formed is refused, never half applied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace crane::timebubble {

constexpr uint32_t kBatchMagic = 0x31544243;  ///< "CBT1"

enum class CallKind : uint16_t {
    kGenesis = 1,   ///< payload: GenesisPayload. The first call of the first batch, nowhere else
    kConnect = 2,   ///< payload: ConnectPayload
    kSend = 3,      ///< payload: bytes from the client
    kShutdown = 4,  ///< the client has sent all it will (FIN)
    kReset = 5,     ///< the connection is gone, both ways (RST, or its primary is gone)
    kWindow = 6,    ///< payload: uint64_t, the send window's new end: bytes the server may have sent in all
    kSignal = 7,    ///< payload: uint32_t signal for the server's main process, by the operator
    kStart =
        8,  ///< payload: StartPayload. The first call of a batch that begins another server; then a genesis
    kStop = 9,        ///< the server ends here, as if all its processes were killed at once
    kProgram = 10,    ///< payload: ProgramPayload and what the server is made of, as text. Not for the domain
    kDatagram = 11,   ///< payload: DatagramPayload and the bytes: a client's datagram, without a connection
    kBase = 12,       ///< payload: BasePayload. Alone in a batch, which the domain is not given
    kConnected = 13,  ///< payload: ConnectedPayload: what became of a connection of the server's (egress.hpp)
    kResolved = 14,   ///< payload: ResolvedPayload and addresses: what a name of the server's stands for
};

struct BatchHeader {
    uint32_t magic;
    uint32_t calls;
    uint64_t timestamp_ns;  ///< the leader's clock (realtime); never below an earlier batch's
    uint64_t grant_clocks;  ///< N(k): clocks until the next batch is admitted, if not quiescent before
};

struct CallHeader {
    CallKind kind;
    uint16_t reserved;
    uint32_t bytes;
    uint64_t connection;
};

struct GenesisPayload {
    uint8_t secret[32];  ///< keys every random stream in the domain
};

/// The server of one generation has ended, by its own deed or by kStop, and the next one begins with this
/// batch. What was decided between that end and this batch is for nobody.
struct StartPayload {
    uint64_t generation;  ///< the server's number: 1 is the one that the first genesis began
    uint64_t checkpoint;  ///< 1: each replica keeps the files that the next server begins with
    /// The server before has not ended by itself: it is ended at this place of its schedule (Place).
    /// Clock 0: it has; with kUnstartedSteps, it could not be started, and is to have run nowhere.
    uint64_t end_clock, end_steps;
};
constexpr uint64_t kUnstartedSteps = 1;

/// What the server of a generation is made of (checkpoint/inventory.hpp), as the primary found it. A later
/// one for the same server counts instead.
struct ProgramPayload {
    uint64_t generation;
    // Its text follows.
};

/// The replicas' servers differ, and no majority agrees: the operator has decided whose state counts from
/// here on. All others begin from a checkpoint of that one's, from behind this entry.
struct BasePayload {
    uint64_t replica;
};

/// Addresses are in network order, as in sockaddr_in / sockaddr_in6.
struct ConnectPayload {
    uint16_t listen_port;  ///< host order: which of the server's listeners
    uint16_t family;       ///< of both addresses
    uint16_t peer_port;    ///< host order
    uint16_t local_port;   ///< host order
    uint8_t peer[16];
    uint8_t local[16];
};

/// Addresses are in network order. The bytes follow.
struct DatagramPayload {
    uint16_t port;    ///< host order: where the client sent it, as the server knows itself
    uint16_t family;  ///< of both addresses
    uint16_t peer_port;
    uint16_t reserved;
    uint64_t receiver;  ///< names the life of the replica that it came to; not for the domain
    uint8_t peer[16];
    uint8_t local[16];
};

struct ConnectedPayload {
    int32_t error;  ///< an errno; 0: it is connected
    uint16_t family;
    uint16_t local_port;  ///< host order
    uint8_t local[16];    ///< network order, of the primary's host
};

/// `addresses` times ResolvedAddress follow.
struct ResolvedPayload {
    int32_t error;  ///< as getaddrinfo has it (EAI_…)
    uint32_t addresses;
};
struct ResolvedAddress {
    uint16_t family;
    uint16_t reserved;
    uint8_t bytes[16];  ///< network order
};
constexpr uint32_t kMaxResolved = 32;

struct Call {
    CallKind kind;
    uint64_t connection;
    std::string_view payload;
};

/// Builds a batch call by call.
class BatchEncoder {
  public:
    BatchEncoder() { reset(); }
    void reset();
    /// Appends a call. False, and nothing appended, if the batch would pass kMaxBatchBytes.
    bool add(CallKind kind, uint64_t connection, std::string_view payload);
    size_t calls() const { return calls_; }
    size_t bytes() const { return buffer_.size(); }
    /// Closes the batch and returns its bytes; the encoder is empty afterwards.
    std::string finish(uint64_t timestamp_ns, uint64_t grant_clocks);

  private:
    std::string buffer_;
    uint32_t calls_ = 0;
};

/// Reads a batch in place. No allocation: the shim uses it too.
class BatchDecoder {
  public:
    /// False if the bytes are not one whole well-formed batch.
    bool open(const uint8_t* data, size_t bytes) noexcept;
    const BatchHeader& header() const { return header_; }
    /// The next call, or false at the end.
    bool next(Call& call) noexcept;

  private:
    BatchHeader header_{};
    const uint8_t* at_ = nullptr;
    const uint8_t* end_ = nullptr;
    uint32_t left_ = 0;
};

}  // namespace crane::timebubble
