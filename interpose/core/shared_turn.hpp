// A turn for operations on what threads share but never wait for (files, random streams, tables of the shim).
#pragma once

#include <optional>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// Under `serial` a thread runs only while it has the turn: nothing to do. Under `parallel` it takes one.
class SharedTurn {
  public:
    explicit SharedTurn(Op op) {
        if (!serial()) turn_.emplace(op);
    }

  private:
    std::optional<Turn> turn_;
};

}  // namespace crane::interpose
