// The domain's memory: everything that all processes of one server share under the shim.
//
// It lies in one anonymous segment (memfd) that fork and exec hand down, so a checkpoint of the processes
// holds it. Rules:
//  - Only the thread that has the turn reads or writes it, so nothing is locked.
//  - Fixed tables, handed out by index from free lists: the same index on every replica for the same
//    schedule.
//  - Zeroed memory is a valid empty table, and pages that were never used cost nothing.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>

#include "dmt_scheduler/state.hpp"
#include "interpose/core/chunks.hpp"
#include "timebubble/admission.hpp"
#include "timebubble/batch.hpp"
#include "timebubble/egress.hpp"
#include "timebubble/transport.hpp"

namespace crane::interpose {

constexpr uint32_t kNone = 0xffff'ffff;
constexpr size_t kMaxProcesses = 1024;
constexpr size_t kMaxFds = 32768;
constexpr size_t kMaxEpolls = 1024;
constexpr size_t kMaxEpollItems = 65536;
constexpr size_t kConnectionBuckets = 8192;
constexpr size_t kPortBuckets = 4096;
constexpr size_t kHeard = 65536;
constexpr size_t kMaxTimers = 16384;
constexpr size_t kMaxSignalFds = 1024;
constexpr size_t kMaxPassed = 256;        ///< messages with descriptors under way
constexpr size_t kMaxPassedAtOnce = 253;  ///< the kernel's own bound for one message
constexpr uint32_t kMaxHeld = 8;
constexpr uint32_t kMaxOrphans = 1024;
constexpr int kSignals = 65;
constexpr uint32_t kMaxQueueNotices = 64;
constexpr uint32_t kMaxQueuedSignals = 65536;
constexpr uint32_t kMaxOptions = 131072;

// --- descriptors

enum class FdKind : uint8_t {
    kUnknown = 0,  ///< not looked at yet
    kPlain,        ///< regular file, directory, device: never blocks on another thread
    kStream,       ///< pipe, eventfd, unix socket: the kernel's own, waiting is scheduled. object: wait
                   ///< number
    kSocket,       ///< virtual TCP or UDP socket. object: index into sockets
    kEpoll,        ///< object: index into epolls
    kEntropy,      ///< /dev/random, /dev/urandom
    kTimer,        ///< object: index into timers
    kSignals,      ///< signalfd. object: index into signal_fds
};

struct FdEntry {
    FdKind kind;
    uint8_t flags;
    uint16_t version;  ///< tells one use of a descriptor number from the next
    uint32_t object;
};

/// What the descriptors of one message mean that is under way between processes (passed.hpp).
struct PassedMessage {
    uint32_t used, count;
    FdEntry entries[kMaxPassedAtOnce];
};

// --- processes

enum class ProcessState : uint32_t { kFree = 0, kLive, kExited, kOpaque };

/// Of a process that cannot be scheduled, and all below it.
struct OpaqueEffort {
    uint64_t run_ns, wait_ns;  ///< on a processor, and waiting for one, of all threads
    uint32_t threads;
    uint32_t on_disk;  ///< so many were asleep where nothing wakes them but the kernel's own work
};

/// Of one that cannot be scheduled: the domain stands while it runs, or it was left to itself (opaque.hpp).
enum class OpaquePhase : uint32_t { kRuns = 0, kLeft };

/// What is known of a signal under way (signal_queue.hpp).
struct SignalInfo {
    int32_t signal, code;
    int32_t sender;  ///< a pid, or under SI_TIMER the timer
    uint32_t user;
    int32_t status;  ///< of a child, or under SI_TIMER the overruns
    uint32_t next;   ///< number in queued_signals, from 1; 0: the last
    uint64_t value;
};

struct PendingSignals {
    uint64_t set;
    uint32_t first, last;  ///< numbers in queued_signals, from 1; 0: none
};

/// Who wants to be told that an empty message queue has a message (queue_notices.hpp).
struct QueueNotice {
    uint64_t queue;  ///< the kernel's number of it; 0: none
    uint64_t made;   ///< n-th of the domain
    uint64_t value;
    uint32_t process;
    int32_t how;  ///< SIGEV_…
    int32_t signal;
    uint32_t given;  ///< for a thread, which has not seen it yet
};

/// By SIGSTOP and its kin; what the parent has not been told yet.
enum class StopNews : uint32_t { kNone = 0, kStopped, kContinued };

/// What the program asked for one signal.
struct SignalAction {
    uint64_t handler;  ///< SIG_DFL, SIG_IGN or an address in that process
    uint64_t flags;
    uint64_t mask;
};

/// What a process has asked the kernel to let it do (sandbox.hpp).
enum class Judged : uint32_t { kByNobody = 0, kByFilters, kStrictly };

struct Process {
    ProcessState state;
    uint32_t parent;  ///< index, kNone: none in the domain
    int32_t pid;
    uint32_t death_expected;  ///< killed by another process of the domain
    uint32_t main_slot;
    uint32_t is_main;
    uint32_t attention;       ///< some signal is pending for the process or one of its threads
    int32_t status;           ///< as waitpid gives it, once kExited
    uint32_t buried;          ///< died with the turn, and someone acts in its stead
    uint32_t subreaper;       ///< the program asked to be parent of the orphans below it
    int32_t death_signal;     ///< PR_SET_PDEATHSIG
    int32_t end_signal;       ///< by which its parent is told of its end (clone(2)); 0: by none
    uint32_t suspends_maker;  ///< who made it (vfork) waits until it executes a program or ends
    Judged judged;            ///< by which rules of its own for system calls
    uint32_t unseen;          ///< kExited, and its parent had said that it would not wait: as good as gone
    uint32_t status_unknown;  ///< kExited, and only the kernel knows how: it was opaque
    OpaquePhase opaque_phase;
    uint64_t opaque_ran_ns;     ///< real time of its own for which the domain stood for it
    uint64_t opaque_stood_ns;   ///< real time for which the domain stood for it
    uint64_t opaque_passed_ns;  ///< of that, since opaque_effort was looked at
    OpaqueEffort opaque_effort;
    uint64_t opaque_streams;  ///< signature of the streams that it was given
    uint64_t ordinal;         ///< n-th process of the domain: names its random stream
    uint64_t entropy_at;      ///< bytes drawn from it
    PendingSignals pending;
    uint64_t born_ns;            ///< virtual time at its fork; 0: with the domain
    uint64_t children_ns;        ///< how long those lived that were waited for
    uint32_t waits_for_lock_of;  ///< index of another process, from 1; 0: for none
    int32_t stop_signal;         ///< its threads do not come out of their next operation; 0: they do
    StopNews stop_news;
    uint64_t alarm_ns;  ///< its interval timer goes off then, under the program that follows; 0: not
    uint64_t alarm_interval_ns;
    uint32_t has_terminal;    ///< leads a session that has one (terminals.hpp)
    int32_t front_group;      ///< in front of it, or was when it was hung up; 0: it had none
    uint64_t signals_posted;  ///< counts what became pending: edges of signalfd
    SignalAction actions[kSignals];
    uint32_t fds_noted;  ///< counts uses of descriptor numbers: FdEntry::version
    uint32_t fds_end;    ///< nothing was ever noted of this descriptor or a higher one
    FdEntry fds[kMaxFds];
};

/// As the program set it (sched.h); the schedule does not care.
struct SchedulingPolicy {
    int32_t policy, priority;
    uint32_t reset_on_fork;
};

/// What a thread has beside its scheduler slot.
struct ThreadExtra {
    uint64_t mask;  ///< blocked signals
    PendingSignals pending;
    uint64_t chosen_for;       ///< of those that are pending for its process (signal_targets.hpp)
    uint64_t waiting_signals;  ///< in sigwait for these
    uint64_t pthread;          ///< pthread_t in its process
    uint32_t detached;
    uint32_t exited;       ///< ended, not joined yet
    uint32_t cancel_type;  ///< as the program set it
    uint32_t cancel_disabled;
    uint32_t cancelled;  ///< 1: asked to end, 2: and a wait was cut short for it, 3: it ends
    uint32_t next_zombie;
    SchedulingPolicy policy;
    uint64_t processors_off;  ///< that it has bound itself away from; the schedule does not care
    uint64_t born_ns;         ///< virtual time at its start; 0: with its process
    uint64_t barrier_round;   ///< that it waits in; 0: in none
    uint64_t awaits;  ///< what others look for: the message queue (the kernel's number), the semaphore, or
                      ///< the key of the lock for writing that it waits for; 0: none
    int32_t spawn_error;      ///< why the child that it began last (posix_spawn) executes no program
    uint32_t counter_denied;  ///< it has asked for rdtsc to fault (PR_SET_TSC)
    uint32_t held_count;
    uint32_t held[kMaxHeld];  ///< sockets of the calls that it sleeps in, handlers' calls last
};

// --- virtual sockets

/// kDatagram: a UDP socket, whatever it is bound or connected to (datagrams.hpp).
/// kConnecting: to the outside (egress.hpp), and nothing is decided yet.
enum class SocketState : uint8_t { kFree = 0, kNew, kListening, kConnected, kOrphan, kDatagram, kConnecting };

struct Address {
    uint16_t family;
    uint16_t port;  ///< host order
    uint8_t bytes[16];
};

/// Of a UDP socket: it has joined some group; which one, nobody is told apart.
constexpr uint8_t kInGroups = 1;
/// What it sends to groups is not for this host (IP_MULTICAST_LOOP).
constexpr uint8_t kUnheard = 2;

/// What a UDP socket has beside the rest.
struct DatagramSocket {
    uint8_t has_peer;       ///< connected
    uint8_t announced;      ///< the proxy knows its port
    uint8_t tells_address;  ///< IP_PKTINFO, IPV6_RECVPKTINFO
    uint8_t groups;         ///< kInGroups, kUnheard
    int32_t error;          ///< not told yet: nobody was there
    Address bound_to;       ///< while it is connected `local` may be more exact
};

/// An option that was set on a socket, as it reads back (socket_options.hpp).
struct KeptOption {
    uint32_t next;  ///< number in options, from 1; 0: the last
    uint16_t level, name;
    uint8_t bytes;
    char value[23];
};

struct VirtualSocket {
    SocketState state;
    uint8_t nonblocking;
    uint8_t fin_received;
    uint8_t reset;
    uint8_t shut_read;
    uint8_t shut_write;
    uint8_t bound;
    uint8_t linger_reset;  ///< SO_LINGER with time 0: close sends RST
    uint8_t nodelay;
    uint8_t reuse_port;
    uint8_t v6_only;
    uint8_t rst_reported;
    uint8_t outcome_untold;  ///< of a connect() that did not wait: the next one is told
    uint16_t defer_accept_s;
    timebubble::ProbeRecord probes;
    uint32_t references;  ///< open descriptors in all processes
    uint32_t generation;
    Address local, peer;
    uint64_t connection;  ///< 0: a connection inside the domain, see `other`
    uint32_t other;       ///< the other end of a connection inside the domain
    uint32_t hash_next;   ///< chain of the connection table
    uint32_t held_port;   ///< that others may not have; 0: none
    uint32_t port_next;   ///< chain of the sockets that hold ports
    /// Listener: the queue of connections not yet accepted.
    uint32_t queue_head, queue_tail, queue_next, queued;
    uint32_t queued_clients;  ///< of those: the others come from inside the domain
    uint32_t places;          ///< for clients in the queue
    /// Input.
    InputQueue input;
    uint64_t consumed_reported;
    /// Output.
    uint64_t sent, window_end;
    uint64_t receive_timeout_ns, send_timeout_ns;
    int32_t connect_error;  ///< not told yet: why it is not connected (SO_ERROR)
    uint32_t watchers;      ///< first epoll item
    DatagramSocket datagram;
    uint32_t options;  ///< number of the first, from 1; 0: none
};

// --- the outside (egress.hpp)

constexpr size_t kRefusalsTold = 16;

/// A name that the server wants the addresses of.
struct Question {
    uint64_t number;  ///< 0: free
    uint32_t answered;
    uint32_t bytes;
    uint8_t answer[sizeof(timebubble::ResolvedPayload) +
                   timebubble::kMaxResolved * sizeof(timebubble::ResolvedAddress)];
};

struct Egress {
    uint64_t generation;  ///< the server's number; 0: the first
    uint64_t numbers;     ///< given
    uint32_t open;        ///< connections
    uint32_t refused_count;
    uint32_t name_server_refused;
    Address refused[kRefusalsTold];  ///< named already
    Question questions[timebubble::kMaxQuestions];
};

// --- epoll

/// What an item of an epoll watches. Sockets tell their watchers; the other kinds are looked at.
enum class Watched : uint8_t { kSocket, kTimer, kSignals, kEpoll };

struct EpollItem {
    uint32_t epoll;
    int32_t fd;
    uint32_t object;  ///< index of the socket, timer, signalfd or epoll
    uint32_t events;
    uint64_t data;
    uint32_t watch_next, watch_previous;  ///< the socket's items, or those of the epoll inside
    uint32_t item_next, item_previous;    ///< the epoll's items; item_next also chains the free list
    uint32_t ready_next, ready_previous;
    uint64_t seen;  ///< under EPOLLET: the timer's expiry, or count of signals or wake-ups, already reported
    uint8_t ready, disabled;
    Watched watched;
};

struct Epoll {
    uint32_t references;
    uint32_t items;  ///< first
    uint32_t ready_head, ready_tail;
    uint32_t kernel_items;
    uint32_t looked_at_items;  ///< timers, signalfds and epolls
    uint32_t look_from;        ///< the item at which the next look at those begins; kNone: the first
    uint32_t asks_first;       ///< which of its kinds epoll_collect() asks first
    uint32_t watchers;         ///< first item, in another epoll, that is this one
    uint64_t kernel_mask;      ///< signature of the kernel descriptors in it
    uint64_t wakeups;          ///< so often something in it may have become ready
};

/// A timerfd: readable when virtual time has passed `next_ns`.
struct VirtualTimer {
    uint32_t references;
    uint32_t nonblocking;
    int32_t clock;
    uint32_t waiter_slot;
    uint64_t next_ns;  ///< realtime; 0: disarmed
    uint64_t interval_ns;
};

/// A signalfd: readable when the process that looks has one of the signals pending.
struct SignalFd {
    uint32_t references;
    uint32_t nonblocking;
    uint64_t mask;
};

// --- files

constexpr size_t kMaxFiles = 65536;  ///< a power of two

/// What inotify says of both ends of a rename (watched_files.hpp).
struct RenameCookie {
    uint32_t real, shown;
};
constexpr size_t kRenameCookies = 64;

/// A file that a program has looked at, and the inode number it was shown.
struct FileIdentity {
    uint64_t key;     ///< of the real file; 0: free
    uint64_t number;  ///< shown
    int64_t read_ns;  ///< the time of access that the program has set; kNoTime: none
    /// Virtual time of its last change that was no write (chmod, link, …), while its mtime is
    /// `mtime_then_ns`; kNoTime: there was none.
    int64_t changed_ns, mtime_then_ns;
};
constexpr int64_t kNoTime = 0;  ///< who sets this very time is shown the time of change

// --- the whole

struct DomainState {
    uint64_t magic;
    uint32_t genesis_seen;
    cpu_set_t given_cpus;          ///< when the domain was made: craned may keep it on one of them later
    uint64_t real_start_ns;        ///< the kernel's clock when the domain was made (file_times.hpp)
    uint64_t monotonic_offset_ns;  ///< realtime minus monotonic
    int64_t wall_shift_ns;         ///< what the program has set its clock ahead of realtime
    uint8_t secret[32];
    uint64_t processes_started;
    uint64_t streams_made;    ///< numbers for kernel streams
    uint32_t inotify_stream;  ///< of all that inotify gives; 0: nobody has asked for any
    uint32_t cookies_shown;
    uint32_t watched_bytes;                                ///< of watched
    RenameCookie cookies[kRenameCookies];                  ///< the last ones that were met
    char watched[sizeof(timebubble::WatchedPaths::text)];  ///< as craned is told
    uint32_t trap_tsc;                                     ///< rdtsc faults and shows virtual time (tsc.hpp)
    uint32_t trap_pauses;                                  ///< `pause` gives way (pauses.hpp)
    uint32_t trap_randoms;  ///< rdrand and rdseed draw from the process's stream (pauses.hpp)
    uint32_t backstop;      ///< system calls from outside the shim are trapped (backstop.hpp)
    uint32_t opaque_processes;
    uint32_t opaque_started;  ///< one has begun, and nobody has stood for it yet
    uint64_t left_streams;  ///< signature of what opaque processes that were left to themselves may write to
    uint32_t main_process;  ///< index of the one that is the server (main_process.hpp)
    int32_t staying_pid;    ///< of the first process, once it is none of the program's any more; 0: it is
    uint32_t served;        ///< some client's connection has been accepted
    uint32_t asked_by_signal;          ///< the operator has sent it a signal
    uint32_t processes_high;           ///< entries ever used
    uint32_t numbers_its_own;          ///< of processes and threads, in a pid namespace (births.hpp)
    uint32_t numbers_apart;            ///< others have taken some
    uint32_t numbers_uncertain;        ///< and could not be kept apart
    int32_t last_number;               ///< given in the schedule, once they are apart
    int32_t ending_pid;                ///< passed the turn on for good and may still live; 0: none
    int32_t ending_tid, tid_of_pid;    ///< the same of a thread, and its process
    uint32_t orphans;                  ///< entries of orphan_pids ever used
    int32_t orphan_pids[kMaxOrphans];  ///< ended, and nobody waits for them (deaths.hpp); 0: free
    uint32_t terminals_closed;         ///< some descriptor of one was, and nobody has looked who is hung up
    uint32_t file_lock_waiters;
    uint32_t next_port;
    uint32_t unix_names;  ///< given to unix sockets that asked for none by name
    uint64_t published_deadline_ns;

    timebubble::AdmissionState admission;
    uint32_t admitted_calls;  ///< of the latest batch; 0: it was a bubble

    uint32_t socket_free, socket_high;
    uint32_t clients;             ///< connections of clients, accepted or not
    uint32_t output_unannounced;  ///< a record was written and the bell not rung
    uint32_t epoll_free, epoll_high;
    uint32_t item_free, item_high;
    uint32_t listeners[timebubble::kMaxListeners];
    uint32_t listener_count;
    uint32_t connections[kConnectionBuckets];
    uint32_t ports[kPortBuckets];                                ///< the TCP sockets that hold one
    uint32_t datagram_sockets[timebubble::kMaxDatagramSockets];  ///< bound ones, by age
    uint32_t datagram_socket_count;
    /// By the address's hash, who was heard last: clients at addresses that are the server's own host's, too,
    /// and those elsewhere that ask from the port of name servers.
    Address heard[kHeard];
    Address reached_at[2];  ///< where the last client's datagram came to, IPv4 and IPv6
    uint32_t reuse_turn;
    Egress egress;
    uint32_t passed_under_way;  ///< entries of `passed` in use

    dmt::State scheduler;
    ThreadExtra threads[dmt::kMaxThreads];
    Process processes[kMaxProcesses];
    VirtualSocket sockets[kMaxSockets];
    Epoll epolls[kMaxEpolls];
    EpollItem items[kMaxEpollItems];
    uint32_t timers_used_below;  ///< none of the lower ones is free
    VirtualTimer timers[kMaxTimers];
    uint64_t barrier_rounds;  ///< ever begun
    uint32_t queue_notices_used;
    uint64_t queue_notices_made;
    QueueNotice queue_notices[kMaxQueueNotices];
    uint32_t signal_free, signal_high;
    SignalInfo queued_signals[kMaxQueuedSignals];
    uint32_t signal_fds_open;
    SignalFd signal_fds[kMaxSignalFds];
    PassedMessage passed[kMaxPassed];
    uint32_t option_free, option_high;
    KeptOption options[kMaxOptions];
    uint32_t files_known;
    FileIdentity files[kMaxFiles];  ///< open hash table by key
    /// Of before the restore that the domain comes out of, and not met again; `number` 0: it was.
    FileIdentity files_before[kMaxFiles];
    uint32_t restored;                 ///< files_before has some
    uint32_t image;                    ///< whose files were found again
    uint64_t file_numbers[kMaxFiles];  ///< open hash set of the numbers in use
    ChunkPool input_pool;
};

}  // namespace crane::interpose
