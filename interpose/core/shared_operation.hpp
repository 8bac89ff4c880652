// Operations on what threads share but never wait for (files, random streams, tables of the shim).
#pragma once

#include <optional>

#include "interpose/core/watched_files.hpp"

namespace crane::interpose {

/// Under `serial` a thread runs only while it has the turn, and it is a step. Under `parallel` it takes one.
class SharedOperation {
  public:
    SharedOperation(Op op, uint64_t object) {
        if (serial()) {
            before_ = scheduler().begin_step();
        } else {
            turn_.emplace(op, object);
        }
    }
    /// As ~Operation() does.
    ~SharedOperation() noexcept(false) {
        file_event();
        scheduler().spend(self.slot, dmt::kKernelStepNs);
        if (turn_) return;
        scheduler().end_step(before_);
        if (before_ == 0) count_file_call();  // not in the midst of another operation
    }
    SharedOperation(const SharedOperation&) = delete;
    SharedOperation& operator=(const SharedOperation&) = delete;

  private:
    std::optional<Operation> turn_;
    uint32_t before_ = 0;
};

/// The same for what takes no turn in `parallel` either.
class SerialStep {
  public:
    SerialStep() : counted_(serial()), before_(counted_ ? scheduler().begin_step() : 0) {}
    ~SerialStep() noexcept(false) {
        if (!counted_) return;
        file_event();
        scheduler().spend(self.slot, dmt::kKernelStepNs);
        scheduler().end_step(before_);
        if (before_ == 0) count_file_call();
    }
    SerialStep(const SerialStep&) = delete;
    SerialStep& operator=(const SerialStep&) = delete;

  private:
    bool counted_;
    uint32_t before_;
};

}  // namespace crane::interpose
