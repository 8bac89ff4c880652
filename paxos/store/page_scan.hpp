// The tree's file, read after recovery has written it back, and before anything is looked up in it.
//
// Berkeley DB takes a page of zeros for one that was never written, whatever its checksum, and goes round in
// circles when its search meets one. Each page says which one it is: where that is not so, the disk has lost
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace crane::paxos {

/// Takes a file in Berkeley DB 5.3's format piece by piece, however it is cut, and holds one page at most of
/// it besides. Anything else than such a file: nothing is found.
class PageScan {
  public:
    /// False: there is nothing more to find out.
    bool add(std::string_view bytes);
    /// The first page that is not in its place.
    std::optional<uint64_t> misplaced() const { return misplaced_; }

  private:
    std::string rest_;  ///< of a page that the last piece has cut
    uint32_t page_bytes_ = 0;
    uint64_t page_ = 0;
    std::optional<uint64_t> misplaced_;
};

/// What such a file cannot begin with, in words; "" where it may be one.
std::string other_than_a_tree(std::string_view beginning);

/// The same as PageScan of a whole file.
std::optional<uint64_t> find_misplaced_page(std::string_view bytes);

}  // namespace crane::paxos
