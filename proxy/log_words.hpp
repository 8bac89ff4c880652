// An entry of the log in words, as `crane log` shows it: for people and programs. The genesis, which is a
// secret, is not shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "paxos/core/types.hpp"

namespace crane::proxy {

/// With so many of its calls at the most, from `first_call` on, and how many more there are.
nlohmann::json entry_json(const paxos::Entry& entry, size_t max_calls = SIZE_MAX, size_t first_call = 0);

}  // namespace crane::proxy
