// Both rings over a real segment, each with its two real ends in two threads: the domain's
// (timebubble/rings.hpp) and craned's (proxy/domain_link.hpp). A lost wake-up shows as a partner that sleeps
// for ever: the watchdog says so.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "proxy/domain_link.hpp"
#include "test_dmt_fibers.hpp"
#include "timebubble/rings.hpp"

using namespace crane::timebubble;
using crane::dmt::testing::Dice;
using crane::proxy::DomainLink;

namespace {

constexpr int kPatienceMs = 10'000;

/// One side's mapping of a segment: each side has its own, as two processes do.
struct Mapping {
    TransportView view{};
    explicit Mapping(int fd) { REQUIRE(map_transport(fd, view)); }
    ~Mapping() { unmap_transport(view); }
};

struct Segment {
    int fd = memfd_create("transport", MFD_CLOEXEC);
    int bell[2];
    Segment() {
        REQUIRE(ftruncate(fd, kTransportFileBytes) == 0);
        REQUIRE(pipe2(bell, O_CLOEXEC | O_NONBLOCK) == 0);
    }
    ~Segment() {
        for (const int each : {fd, bell[0], bell[1]}) close(each);
    }
};

uint8_t pattern(uint64_t record, size_t at) {
    return static_cast<uint8_t>(record * 31 + at * 7 + (at >> 8));
}

void fill(uint8_t* to, uint64_t record, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) to[i] = pattern(record, i);
}
bool filled(const uint8_t* from, uint64_t record, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
        if (from[i] != pattern(record, i)) return false;
    }
    return true;
}

/// The two sides run at the same moment only if they are on two cores; left alone, the kernel keeps partners
/// that wake each other on one.
class OnCore {
  public:
    explicit OnCore(int n) {
        sched_getaffinity(0, sizeof(before_), &before_);
        cpu_set_t one;
        CPU_ZERO(&one);
        n %= CPU_COUNT(&before_);
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (CPU_ISSET(cpu, &before_) && n-- == 0) CPU_SET(cpu, &one);
        }
        sched_setaffinity(0, sizeof(one), &one);
    }
    ~OnCore() { sched_setaffinity(0, sizeof(before_), &before_); }

  private:
    cpu_set_t before_;
};

/// Now and then the two sides take turns at being the slower one.
void dawdle(Dice& dice) {
    if (dice.below(200) == 0) {
        std::this_thread::yield();
    } else {
        for (uint64_t i = dice.below(uint64_t{1} << dice.below(12)); i > 0; --i)
            asm volatile("" ::: "memory");
    }
}

constexpr uint64_t kRecords = 100'000;

/// The producer stops after most records until they are taken: only so does the consumer run dry and go to
/// sleep, at about the moment of the next record, and nothing later makes up for a wake-up that was lost.
bool wait_until_taken(const Ring& ring, uint64_t record) {
    if (record % 4 == 0) return true;
    const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    for (uint32_t round = 1; ring.tail != ring.head; ++round) {
        if (round % 64) {
            __builtin_ia32_pause();
            continue;
        }
        std::this_thread::yield();
        if (std::chrono::steady_clock::now() > patience) return false;
    }
    return true;
}

/// Mostly small, so that the partner often sleeps; some large, so that rings fill and wrap.
size_t record_bytes(Dice& dice, size_t most) {
    return dice.below(100) == 0 ? dice.below(most + 1) : dice.below(64);
}

/// craned as its event loop does it: announce, look once more, sleep on the bell.
uint64_t drain_output(Mapping& mine, int bell, std::atomic<bool>& lost_wakeup) {
    const OnCore core(1);
    DomainLink link(mine.view);
    Dice sizes{1}, pace{2};
    uint64_t record = 0;
    bool good = true;
    const auto check = [&](const OutputHeader& header, std::string_view payload) {
        const size_t bytes = record_bytes(sizes, kMaxOutputPayload);
        good = good && header.connection == record && payload.size() == bytes &&
               filled(reinterpret_cast<const uint8_t*>(payload.data()), record, bytes);
        ++record;
        dawdle(pace);
    };
    while (good && record < kRecords) {
        if (link.drain(check, 1 << 20) != 0) continue;
        if (link.prepare_sleep()) {
            pollfd ready{bell, POLLIN, 0};
            poll(&ready, 1, -1);
            if (lost_wakeup) return record;
            char rung[64];
            (void)!read(bell, rung, sizeof(rung));
        }
        link.awake();
    }
    return good ? record : 0;
}

}  // namespace

TEST_CASE("rings: output arrives whole and in order, and no wake-up is lost", "[timebubble]") {
    Segment segment;
    Mapping domain(segment.fd), craned(segment.fd);
    std::atomic<bool> lost_wakeup{false};
    uint64_t received = 0;
    std::thread consumer([&] { received = drain_output(craned, segment.bell[0], lost_wakeup); });

    const OnCore core(0);
    OutputRing ring(domain.view, segment.bell[1]);
    Dice sizes{1}, pace{3};
    for (uint64_t record = 0; record < kRecords && !lost_wakeup; ++record) {
        const size_t bytes = record_bytes(sizes, kMaxOutputPayload);
        fill(ring.reserve(bytes), record, bytes);
        ring.commit({static_cast<uint32_t>(bytes), OutputKind::kSend, 0, record, 0, 0});
        ring.ring();
        lost_wakeup = lost_wakeup || !wait_until_taken(domain.view.control->output, record);
        dawdle(pace);
    }
    if (lost_wakeup) (void)!write(segment.bell[1], "", 1);  // by hand, so that the test can end
    consumer.join();
    CHECK_FALSE(lost_wakeup);
    CHECK(received == kRecords);
    CHECK(domain.view.control->output.head > 4 * kOutputRingBytes);  // around its end, and full on the way
    CHECK(domain.view.control->status.doorbells > 0);
    CHECK(domain.view.control->status.doorbells < kRecords);  // who is awake is not rung
}

TEST_CASE("rings: a producer on a full ring sleeps until there is room", "[timebubble]") {
    Segment segment;
    Mapping domain(segment.fd), craned(segment.fd);
    std::atomic<uint64_t> produced{0};
    constexpr size_t kBytes = kMaxOutputPayload;
    constexpr uint64_t kFits = kOutputRingBytes / (kBytes + sizeof(OutputHeader));
    craned.view.control->output.waiting = 1;  // craned sleeps: a producer that has to wait must have rung it
    std::thread producer([&] {
        OutputRing ring(domain.view, segment.bell[1]);
        for (uint64_t record = 0; record < 3 * kFits; ++record) {
            fill(ring.reserve(kBytes), record, kBytes);
            ring.commit({kBytes, OutputKind::kSend, 0, record, 0, 0});
            ++produced;  // nobody is rung by this
        }
    });
    pollfd ready{segment.bell[0], POLLIN, 0};
    CHECK(poll(&ready, 1, kPatienceMs) == 1);
    CHECK(produced == kFits);
    DomainLink link(craned.view);
    uint64_t record = 0, wrong = 0;
    while (record < 3 * kFits) {
        link.drain(
            [&](const OutputHeader& header, std::string_view payload) {
                wrong += header.connection != record ||
                         !filled(reinterpret_cast<const uint8_t*>(payload.data()), record, kBytes);
                ++record;
            },
            1 << 20);
        std::this_thread::yield();
    }
    producer.join();
    CHECK(wrong == 0);
    CHECK(produced == 3 * kFits);
}

TEST_CASE("rings: input arrives whole and in order, and no wake-up is lost", "[timebubble]") {
    Segment segment;
    Mapping domain(segment.fd), craned(segment.fd);
    std::atomic<uint64_t> received{0};
    bool good = true;
    std::thread consumer([&] {
        const OnCore core(1);
        InputRing ring(domain.view);
        Dice sizes{1}, pace{2};
        while (received < kRecords) {
            const InputHeader* header = ring.front();
            if (!header) {
                ring.sleep_until_rung();
                continue;
            }
            const size_t bytes = record_bytes(sizes, kMaxBatchBytes / 4);
            good = good && header->index == received && header->bytes == bytes &&
                   filled(reinterpret_cast<const uint8_t*>(header + 1), received, bytes);
            ring.pop();
            ++received;
            dawdle(pace);
        }
    });

    const OnCore core(0);
    DomainLink link(craned.view);
    Dice sizes{1}, pace{3};
    std::string batch;
    uint64_t full = 0;
    bool stuck = false;
    for (uint64_t record = 0; record < kRecords; ++record) {
        batch.resize(record_bytes(sizes, kMaxBatchBytes / 4));
        fill(reinterpret_cast<uint8_t*>(batch.data()), record, batch.size());
        for (; !link.feed(record, batch); ++full) std::this_thread::yield();
        stuck = stuck || !wait_until_taken(craned.view.control->input, record);
        if (stuck) {  // wakes it by hand, so that the test can end
            domain.view.control->input.doorbell.fetch_add(1);
            futex_wake(domain.view.control->input.doorbell);
        }
        dawdle(pace);
    }
    consumer.join();
    CHECK(good);
    CHECK_FALSE(stuck);
    CHECK(link.wakeups() > 0);
    CHECK(link.wakeups() < kRecords);
    CHECK(domain.view.control->input.head > 4 * kInputRingBytes);
    CHECK(domain.view.control->input.head == domain.view.control->input.tail);
}
