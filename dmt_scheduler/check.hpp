// Assertions that stay on in production, for code that lives in someone else's process: no allocation, no
// stdio.
#pragma once

namespace crane::dmt {

/// Writes the failed condition to standard error and ends the process with SIGABRT.
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace crane::dmt

#define CRANE_CHECK(condition) \
    (__builtin_expect(!!(condition), 1) ? (void)0 : crane::dmt::check_failed(#condition, __FILE__, __LINE__))
