// Operations on what threads share but never wait for (files, random streams, tables of the shim).
#pragma once

#include <optional>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// Under `serial` a thread runs only while it has the turn: nothing to do. Under `parallel` it takes one.
class SharedOperation {
  public:
    SharedOperation(Op op, uint64_t object) {
        if (!serial()) turn_.emplace(op, object);
    }

  private:
    std::optional<Operation> turn_;
};

}  // namespace crane::interpose
