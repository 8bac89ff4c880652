// craned's end of the rings, against a domain played by the test.
#include <sys/mman.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <cstring>
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
    segment.publish(OutputKind::kAdmitted, std::string(sizeof(AdmittedRecord), '\0'));
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
