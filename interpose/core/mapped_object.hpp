// Which file an address of this process is mapped from.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

/// The last part of its path, and where in it the address lies. False: from none.
bool find_mapped_object(uint64_t address, char* name, size_t room, uint64_t& offset);

}  // namespace crane::interpose
