// The tree's file, read after recovery has written it back, and before anything is looked up in it.
//
// Berkeley DB takes a page of zeros for one that was never written, whatever its checksum, and goes round in
// circles when its search meets one. Each page says which one it is: where that is not so, the disk has lost
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace crane::paxos {

// `bytes`: a whole file in Berkeley DB 5.3's format. The first page that is not in its place; anything else
// than such a file: nothing is found.
std::optional<uint64_t> find_misplaced_page(std::string_view bytes);

}  // namespace crane::paxos
