// A domain over plain memory, for tests of the shim's tables: nothing is preloaded, no segment is shared.
//
// The test is the first thread of the first process, and has the turn. Further threads are fibers: they run
// when the test waits for them (settle), until each of them waits or has ended.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "interpose/core/runtime.hpp"
#include "test_dmt_fibers.hpp"
#include "timebubble/batch.hpp"

namespace crane::interpose::testing {

using dmt::testing::Dice;

/// One record of the output ring.
struct Said {
    timebubble::OutputKind kind;
    uint16_t flags;
    uint64_t connection;
    std::string payload;
};

class PlainDomain {
  public:
    explicit PlainDomain(uint64_t seed = 1);
    ~PlainDomain();
    PlainDomain(const PlainDomain&) = delete;
    PlainDomain& operator=(const PlainDomain&) = delete;

    DomainState& state() { return state_; }

    /// A thread of the process that acts now.
    dmt::SlotId thread(std::function<void()> body);
    /// Until every other thread waits or has ended.
    void settle();
    bool waits(dmt::SlotId slot) const;

    /// A process of one thread, which does nothing but wait. Its parent is the one that acts now.
    uint32_t process(int pid);
    /// The test acts as that process from here on.
    void act_as(uint32_t process);

    /// One decided call.
    void call(timebubble::CallKind kind, uint64_t connection, std::string_view payload = {});
    /// What the domain has put out since it was last asked.
    std::vector<Said> said();
    const timebubble::DomainStatus& status() const { return control_.status; }
    void pass_time(uint64_t ns);
    uint64_t now_ns() const;

  private:
    void become(dmt::SlotId slot);

    DomainState& state_;
    dmt::testing::FiberDomain fibers_;
    std::vector<uint8_t> output_;
    timebubble::Control& control_;  ///< a forked child's words can be read in the test
};

/// As long as it is there, a bad address ends a copy and not the test, as the shim's own handler has it.
class BadAddresses {
  public:
    BadAddresses();
    ~BadAddresses();

  private:
    struct sigaction before_ {};
};

template <typename T>
std::string_view bytes_of(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace crane::interpose::testing
