// Random bytes that every replica draws alike.
#pragma once

#include <cstddef>

namespace crane::interpose {

/// Fills from this process's stream. Needs no turn in `serial`; takes none itself.
void fill_random(void* out, size_t bytes);

}  // namespace crane::interpose
