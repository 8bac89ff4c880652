// What every replica's domain must have equal, in one number.
#pragma once

#include <cstdint>

#include "proxy/config.hpp"

namespace crane::proxy {

uint64_t settings_hash(const Config& config);

}  // namespace crane::proxy
