// Signals by name, as kill(1) takes them.
#pragma once

#include <cstdint>
#include <string>

namespace crane::proxy {

/// Of a number, or of a name in any case, with SIG or without, also RTMIN+n and RTMAX-n. Throws
/// std::runtime_error, which says what there is.
uint32_t signal_number(const std::string& text);

}  // namespace crane::proxy
