// What is done with each system call, by its number.
#pragma once

#include <cstdint>

namespace crane::interpose {

enum class Treatment : uint8_t {
    kUnknown,  ///< newer than this table: refused as kRefused is
    kServed,   ///< the same code as the wrapper of libc's function
    kKernel,   ///< as it is
    kAbsent,   ///< ENOSYS, as of a kernel that has none
    kRefused,  ///< ENOSYS, and craned's log names it
};

struct SystemCall {
    const char* name;
    Treatment treatment;
    long (*served)(const long* arguments);
};
const SystemCall& system_call(long number);

/// Does what the table says. As libc's functions: -1 and errno.
long lead_system_call(long number, const long* arguments);

}  // namespace crane::interpose
