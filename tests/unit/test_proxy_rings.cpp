// craned's end of the rings, against a domain played by the test.
#include <sys/mman.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "proxy/domain_link.hpp"
#include "timebubble/batch.hpp"

using namespace crane::proxy;
using namespace crane::timebubble;

namespace {

struct Segment {
    TransportView view{};
    Segment() {
        const int fd = memfd_create("transport", 0);
        REQUIRE(ftruncate(fd, kTransportFileBytes) == 0);
        REQUIRE(map_transport(fd, view));
        close(fd);
    }
    ~Segment() { unmap_transport(view); }

    void publish(OutputKind kind, std::string_view payload) {
        Ring& ring = view.control->output;
        const uint64_t head = ring.head;
        const OutputHeader header{static_cast<uint32_t>(payload.size()), kind, 0, 1, 2, 3};
        uint8_t* at = view.output + head % kOutputRingBytes;
        memcpy(at, &header, sizeof(header));
        memcpy(at + sizeof(header), payload.data(), payload.size());
        ring.head = head + sizeof(header) + padded(payload.size());
    }
    void admit(uint64_t index) {
        const AdmittedRecord record{index, 1};
        publish(OutputKind::kAdmitted, {reinterpret_cast<const char*>(&record), sizeof(record)});
    }
};

}  // namespace

TEST_CASE("domain link: batches arrive whole and in order, and a full ring refuses", "[proxy]") {
    Segment segment;
    DomainLink link(segment.view);
    const std::string batch(kMaxBatchBytes, 'b');
    uint64_t fed = 0;
    while (link.feed(fed + 1, batch)) ++fed;
    CHECK(fed >= kInputRingBytes / (kMaxBatchBytes + 64) - 1);
    CHECK(link.unadmitted() == fed);
    Ring& ring = segment.view.control->input;
    for (uint64_t round = 0; round < 40; ++round) {  // around the ring's end, several times
        InputHeader header;
        const uint8_t* at = segment.view.input + ring.tail % kInputRingBytes;
        memcpy(&header, at, sizeof(header));
        REQUIRE(header.index == round + 1);
        REQUIRE(header.bytes == batch.size());
        REQUIRE(memcmp(at + sizeof(header), batch.data(), batch.size()) == 0);
        ring.tail = ring.tail + sizeof(header) + padded(header.bytes);
        REQUIRE(link.feed(++fed, batch));
    }
}

TEST_CASE("domain link: output is drained once, admissions are counted, a scribbled ring is refused",
          "[proxy]") {
    Segment segment;
    DomainLink link(segment.view);
    std::vector<std::string> got;
    const auto keep = [&](const OutputHeader&, std::string_view payload) { got.emplace_back(payload); };
    CHECK(link.drain(keep, 1 << 20) == 0);
    REQUIRE(link.feed(1, "x"));
    segment.publish(OutputKind::kSend, "one");
    segment.admit(1);
    CHECK(link.drain(keep, 1 << 20) == 2);
    CHECK(got[0] == "one");
    CHECK(link.unadmitted() == 0);
    CHECK(link.drain(keep, 1 << 20) == 0);
    CHECK(segment.view.control->output.tail == segment.view.control->output.head);
    segment.view.control->output.head += 3;
    CHECK_THROWS(link.drain(keep, 1 << 20));
}

TEST_CASE("domain link: nobody is woken who did not say that it sleeps", "[proxy]") {
    Segment segment;
    DomainLink link(segment.view);
    REQUIRE(link.feed(1, "x"));
    CHECK(segment.view.control->input.doorbell == 0);
    segment.view.control->input.waiting = 1;
    REQUIRE(link.feed(2, "x"));
    CHECK(segment.view.control->input.doorbell == 1);
    CHECK(segment.view.control->input.waiting == 0);
    REQUIRE(link.feed(3, "x"));
    CHECK(segment.view.control->input.doorbell == 1);

    CHECK(link.prepare_sleep());
    CHECK(segment.view.control->output.waiting == 1);
    link.awake();
    CHECK(segment.view.control->output.waiting == 0);
    segment.publish(OutputKind::kSend, "late");
    CHECK_FALSE(link.prepare_sleep());
}

TEST_CASE("domain link: a producer that sleeps on a full ring is woken", "[proxy]") {
    Segment segment;
    DomainLink link(segment.view);
    segment.publish(OutputKind::kSend, "x");
    segment.view.control->output.producer_waiting = 1;
    link.drain([](const OutputHeader&, std::string_view) {}, 1 << 20);
    CHECK(segment.view.control->output.producer_waiting == 0);
}

TEST_CASE("domain link: what does not fit is refused, whatever it is", "[proxy]") {
    const auto refused = [](const std::function<void(Segment&)>& scribble) {
        Segment segment;
        DomainLink link(segment.view);
        REQUIRE(link.feed(7, "x"));
        scribble(segment);
        CHECK_THROWS_AS(link.drain([](const OutputHeader&, std::string_view) {}, 1 << 20),
                        std::runtime_error);
    };
    refused([](Segment& s) { s.admit(8); });                                  // not the batch that was fed
    refused([](Segment& s) { s.admit(7), s.admit(7); });                      // twice
    refused([](Segment& s) { s.publish(OutputKind::kConsumed, "123"); });     // not a number's size
    refused([](Segment& s) { s.publish(OutputKind::kListen, ""); });          // no address
    refused([](Segment& s) { s.publish(static_cast<OutputKind>(0), ""); });   // no kind
    refused([](Segment& s) { s.publish(static_cast<OutputKind>(99), ""); });  // a kind to come
    refused([](Segment& s) { s.view.control->output.head = ~uint64_t{0}; });  // behind the tail
    refused([](Segment& s) { s.publish(OutputKind::kSend, std::string(kMaxOutputPayload + 1, 'x')); });

    Segment segment;
    DomainLink link(segment.view);
    segment.view.control->input.tail = 1 << 30;
    CHECK_THROWS_AS(link.feed(1, "x"), std::runtime_error);
}

TEST_CASE("domain link: craned's own offsets are not read back from the segment", "[proxy]") {
    Segment segment;
    DomainLink link(segment.view);
    std::vector<std::string> got;
    const auto keep = [&](const OutputHeader&, std::string_view payload) { got.emplace_back(payload); };
    segment.publish(OutputKind::kSend, "one");
    CHECK(link.drain(keep, 1 << 20) == 1);
    segment.view.control->output.tail = 0;  // what was drained is not drained again
    segment.publish(OutputKind::kSend, "two");
    CHECK(link.drain(keep, 1 << 20) == 1);
    CHECK(got == std::vector<std::string>{"one", "two"});
    REQUIRE(link.feed(1, "a"));
    const uint64_t head = segment.view.control->input.head;
    segment.view.control->input.head = 12345;
    REQUIRE(link.feed(2, "b"));
    CHECK(segment.view.control->input.head == 2 * head);
}

TEST_CASE("domain link: a refusal without an end is read to its end and forges no line", "[proxy]") {
    Segment segment;
    DomainLink link(segment.view);
    DomainStatus& status = segment.view.control->status;
    memset(status.refusal, 'r', sizeof(status.refusal));
    status.refusal[3] = '\n';
    const std::string refusal = link.refusal();
    CHECK(refusal.size() == sizeof(status.refusal));
    CHECK(refusal.substr(0, 6) == "rrr?rr");
}

// Not among those that are run under TSan: the race is what is tested.
TEST_CASE("scribbled segment: craned's end survives, and says so", "[proxy]") {
    Segment segment;
    std::atomic<bool> stop{false};
    std::thread scribbler([&] {
        std::mt19937_64 random(1);
        auto* words = reinterpret_cast<uint64_t*>(segment.view.control);
        auto* output = reinterpret_cast<uint64_t*>(segment.view.output);
        for (uint64_t round = 0; !stop; ++round) {
            words[random() % (sizeof(Control) / 8)] = round % 3 ? random() % 4096 : random();
            output[random() % 4096] = round % 2 ? random() % 16 << 32 | random() % 512 : random();
            if (round % 8 == 0) segment.view.control->output.head = random() % 65536;
        }
    });
    size_t records = 0, refusals = 0;
    const auto look = [&](const OutputHeader& header, std::string_view payload) {
        ++records;
        if (payload.size() != header.bytes) throw std::logic_error("the payload is not what was checked");
        const std::string twice(payload);
        if (twice != payload) throw std::logic_error("a record changed while it was looked at");
    };
    // On a busy machine the scribbler may not have come far by then.
    const auto seen_both = [&] { return records > 0 && refusals > 0; };
    for (int round = 0; round < 20'000 || (!seen_both() && round < 5'000'000); ++round) {
        DomainLink link(segment.view);  // as after the domain was ended
        try {
            for (uint64_t turn = 1; turn <= 8; ++turn) {
                link.feed(turn, "batch");
                link.drain(look, 1 << 16);
                (void)link.prepare_sleep();
                (void)link.at_rest();
                link.awake();
                CHECK(link.refusal().size() <= sizeof(DomainStatus::refusal));
                CHECK(link.unadmitted() <= turn);
            }
        } catch (const std::runtime_error&) {
            ++refusals;
        }
    }
    stop = true;
    scribbler.join();
    CHECK(refusals > 0);
    CHECK(records > 0);
}
