// Times in words, for people.
#pragma once

#include <cstdint>
#include <string>

namespace crane::proxy {

/// "2026-02-28 12:00:00 UTC"
std::string utc_text(int64_t since_1970_s);
/// "59 s", "12 min", "3 h", "4 d": two of a unit at least, and none below zero.
std::string span_text(int64_t seconds);

}  // namespace crane::proxy
