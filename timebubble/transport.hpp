// timebubble: how the decided sequence reaches the domain, and when.
//
// This header is the whole contract between craned and the shim: the shared segment that lies between them.
// craned puts decided batches into the input ring; the domain admits each one whole at the logical clock that
// the admission rule gives (admission.hpp), and puts all it does to the outside into the output ring.
//
// Rules:
//  - The segment's contents are not state. All that must survive a checkpoint lives in the domain's own
//    memory; a fresh, zeroed segment of the same size can take its place between two operations.
//  - One producer and one consumer for each ring: the input's consumer and the output's producer is whichever
//    thread holds the domain's turn, so neither side takes a lock.
//  - A record is published by the store to `head` (release), after all its bytes.
//  - Nobody sleeps without having announced it (`waiting`), nobody wakes a partner that is awake.
//  - The two sides may be of different builds only if kTransportVersion agrees.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/gate.hpp"
#include "base/own_address.hpp"

namespace crane::timebubble {

constexpr uint64_t kTransportMagic = 0x3165'6e61'7243'0a0dULL;
constexpr uint32_t kTransportVersion = 3;

constexpr size_t kControlBytes = 64 * 1024;
constexpr size_t kInputRingBytes = 16 * 1024 * 1024;
constexpr size_t kOutputRingBytes = 16 * 1024 * 1024;
constexpr size_t kTransportFileBytes = kControlBytes + kInputRingBytes + kOutputRingBytes;

/// A batch, as proposed, is never larger; so one always fits into an empty input ring.
constexpr size_t kMaxBatchBytes = 1024 * 1024;
/// One output record's payload is never larger; longer sends become several records.
constexpr size_t kMaxOutputPayload = 256 * 1024;

/// What the domain does when it wants the turn order: set by craned before the domain starts.
enum class Policy : uint32_t { kSerial = 0, kParallel = 1 };

/// Settings that every replica's domain must have equal. Written by craned before the server starts.
struct DomainSettings {
    Policy policy;
    uint32_t quantum;          ///< operations a thread may do before it passes the turn on
    uint32_t bubbles_enabled;  ///< 0: admit on arrival (the paper's plan II): replicas diverge
    uint32_t schedule;  ///< 0: no scheduling, no virtual sockets: only listening ports are moved and reported
    uint32_t virtual_cpus;
    uint32_t pinned_cpu_plus1;  ///< 0: not pinned
    uint64_t virtual_memory_bytes;
    uint64_t disturb_seed;  ///< 0: off; else random delays at hand-overs, for tests only
    /// The kernel's real time from which on files are changed by servers of this replica; 0: from now on.
    uint64_t files_since_ns;
    char hostname[64];
};

/// One direction. Offsets grow for ever; the place of offset o is o modulo the ring's size (a power of two).
struct Ring {
    alignas(64) std::atomic<uint64_t> head;      ///< bytes ever published by the producer
    alignas(64) std::atomic<uint64_t> tail;      ///< bytes ever freed by the consumer
    alignas(64) std::atomic<uint32_t> doorbell;  ///< futex: rises with each ring of the bell
    std::atomic<uint32_t> waiting;               ///< the consumer sleeps (or is about to) and wants the bell
    std::atomic<uint32_t> producer_waiting;      ///< the producer sleeps on a full ring
};

enum class Attachment : uint32_t {
    kNone = 0,
    kAttached = 1,  ///< the shim is loaded in the server and waits for the first batch
    kRefused = 2,   ///< it is loaded and cannot go on: `refusal` says why
    kUnfit = 3,     ///< the same, and it would end so each time
    kStruck = 4,  ///< the same, for what somebody outside has done: it would not end so again, however often
};

/// What the domain says of itself; plain words, each may be read at any time.
struct DomainStatus {
    std::atomic<uint32_t> attachment;
    std::atomic<uint32_t> server_pid;  ///< in the container's pid namespace
    std::atomic<uint64_t> clock;       ///< logical clock
    std::atomic<uint64_t> schedule_hash;
    std::atomic<uint64_t> admitted_index;  ///< log index of the last batch admitted
    std::atomic<uint64_t> grant_end;       ///< T(k)+N(k)
    std::atomic<uint64_t> deadline_ns;     ///< earliest virtual one (realtime), 0: none. Valid if quiescent
    std::atomic<uint32_t> quiescent;       ///< every thread waits: the next batch is admitted at once
    std::atomic<uint32_t> asks;  ///< 1: the grant is nearly used up (or is): propose the next batch now
    std::atomic<uint64_t> virtual_now_ns;
    std::atomic<uint32_t> threads;
    std::atomic<uint32_t> processes;
    std::atomic<uint64_t> files_since_ns;  ///< as in the settings, or as found out at the start
    /// Counters for the evaluation.
    std::atomic<uint64_t> handovers;  ///< turns passed to another thread
    std::atomic<uint64_t> wakeups;    ///< of those, how many needed a futex wake
    std::atomic<uint64_t> doorbells;  ///< system calls made to wake craned
    std::atomic<uint64_t> bubbles;    ///< batches without a client call that were admitted
    char refusal[512];
};

/// A place in the server's code that reads the time stamp counter by faulting.
struct TscSite {
    std::atomic<uint64_t> at;  ///< 0: free
    std::atomic<uint32_t> faults;
    std::atomic<uint32_t> patched;  ///< 1: it has ceased to fault, in one process at least
};
struct TscFaults {
    std::atomic<uint64_t> all;
    TscSite sites[64];  ///< the first that were met
};

/// A place outside of the shim that made a system call which was trapped.
struct TrapSite {
    std::atomic<uint64_t> at;  ///< behind the instruction; 0: free
    std::atomic<uint32_t> number;
    std::atomic<uint64_t> calls;
    std::atomic<uint64_t> offset;  ///< in the file that the code is from
    char object[40];               ///< the file's name, or a part of it
};
constexpr size_t kSystemCalls = 512;
struct TrappedCalls {
    std::atomic<uint64_t> by_number[kSystemCalls];
    TrapSite sites[256];  ///< the first that were met
};

/// What the server has inotify watch, for CRIU, which finds no file by its inode: paths, each with its 0.
struct WatchedPaths {
    std::atomic<uint32_t> bytes;
    char text[16 * 1024];
};

/// Connections of the server's to the outside. The same on all replicas.
enum class EgressPolicy : uint32_t { kRefuse = 0, kPrimary = 1 };

struct Control {
    uint64_t magic;
    uint32_t version;
    uint32_t image;  ///< the processes come out of it; 0: out of none
    DomainSettings settings;
    DomainStatus status;
    Ring input;   ///< craned to domain: InputHeader records
    Ring output;  ///< domain to craned: OutputHeader records
    Gate gate;    ///< from here on: an older domain out of an image does not know it
    TscFaults tsc;
    uint32_t backstop;  ///< set by craned: system calls that no wrapper sees are trapped
    TrappedCalls trapped;
    uint32_t egress;  ///< EgressPolicy
    WatchedPaths watched;
    OwnAddresses own_addresses;
};
static_assert(sizeof(Control) <= kControlBytes);

/// A record of the input ring: one decided batch. Records are padded to 8 bytes.
struct InputHeader {
    uint32_t bytes;  ///< of the encoded batch that follows (batch.hpp)
    uint32_t reserved;
    uint64_t index;  ///< its place in the log
};

enum class OutputKind : uint16_t {
    kSend = 1,      ///< payload: bytes for the client
    kShutdown = 2,  ///< the server will send no more on the connection (FIN)
    kClose = 3,     ///< the server has closed it; `flags` 1: reset it (RST)
    kAccept = 4,    ///< the server took the connection from its queue
    kConsumed = 5,  ///< payload: uint64_t, bytes of input the server has taken from the connection so far
    kListen = 6,    ///< payload: ListenRecord
    kUnlisten = 7,  ///< payload: ListenRecord
    kAdmitted = 8,  ///< payload: AdmittedRecord
    kExit = 9,  ///< payload: ExitRecord: a process of the domain ends by its own deed; the main one's is the
                ///< last record
    kMessage = 10,          ///< payload: text for the operator (a refusal, a limitation met)
    kProbes = 11,           ///< payload: ProbeRecord: how the server wants a silent client to be found
    kDatagramPort = 12,     ///< payload: ListenRecord: clients' datagrams are for this port
    kDatagramPortEnd = 13,  ///< payload: ListenRecord
    kDatagram = 14,         ///< payload: DatagramRecord and the bytes, for a client
    kConnect = 15,          ///< payload: EgressRecord: the server connects to the outside (egress.hpp)
    kResolve = 16,          ///< payload: a host's name, whose addresses the server wants
};

/// A record of the output ring, padded to 8 bytes. Equal on every replica, bit for bit.
struct OutputHeader {
    uint32_t bytes;  ///< payload bytes that follow
    OutputKind kind;
    uint16_t flags;
    uint64_t connection;     ///< 0 where it has no meaning
    uint64_t clock;          ///< logical clock of the operation
    uint64_t schedule_hash;  ///< of all scheduled operations up to it
};

struct ListenRecord {
    uint16_t family;          ///< AF_INET or AF_INET6
    uint16_t port;            ///< host order
    uint16_t actual_port;     ///< where a server without scheduling really listens; 0 otherwise
    uint16_t defer_accept_s;  ///< TCP_DEFER_ACCEPT: a client is taken when it has sent something
    uint8_t address[16];
    uint32_t places;    ///< for clients that wait to be accepted at this port, of all listeners there are now
    uint32_t protocol;  ///< 0: TCP; IPPROTO_UDP
};
/// ListenRecord::protocol, by the record's kind.
constexpr uint32_t protocol_of(OutputKind kind) {
    return kind == OutputKind::kDatagramPort || kind == OutputKind::kDatagramPortEnd ? 17U : 0U;
}
/// OutputHeader::flags of a kListen: not another listener, only its settings have changed.
constexpr uint16_t kListenChanged = 1;

/// Addresses are in network order. The bytes follow.
struct DatagramRecord {
    uint16_t port;  ///< host order: of the server's socket
    uint16_t family;
    uint16_t peer_port;
    uint16_t reserved;
    uint8_t peer[16];
};

/// Where the server connects to. The address is in network order.
struct EgressRecord {
    uint16_t family;
    uint16_t port;  ///< host order
    uint8_t address[16];
};

struct AdmittedRecord {
    uint64_t index;
    uint64_t clock;  ///< T(index)
};

/// What the server has set on a client's connection (SO_KEEPALIVE and its times, TCP_USER_TIMEOUT). 0: not
/// set.
struct ProbeRecord {
    uint32_t keepalive;
    uint32_t idle_s, interval_s, probes;
    uint32_t user_timeout_ms;
    uint32_t reserved;
    bool operator==(const ProbeRecord&) const = default;
};

struct ExitRecord {
    uint32_t pid;
    int32_t status;    ///< as waitpid gives it
    uint32_t is_main;  ///< the process craned started
    uint32_t reserved;
};

/// One side's view of the segment. The rings' data is mapped twice in a row, so that a record never wraps.
struct TransportView {
    Control* control;
    uint8_t* input;
    uint8_t* output;
};

/// Maps the segment behind `fd` (of kTransportFileBytes). Returns false with errno set when it cannot.
bool map_transport(int fd, TransportView& view) noexcept;
void unmap_transport(TransportView& view) noexcept;

constexpr size_t padded(size_t bytes) {
    return (bytes + 7) & ~size_t{7};
}

}  // namespace crane::timebubble
