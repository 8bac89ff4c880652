#include "paxos/store/page_scan.hpp"

#include <cstring>

namespace crane::paxos {
namespace {

constexpr size_t kNumberPlace = 8;  // in every page, behind the place of its last change in the log
constexpr size_t kSizePlace = 20;   // in the first page
constexpr uint32_t kMinPageBytes = 512, kMaxPageBytes = 65536;

uint32_t get(std::string_view bytes, size_t place) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + place, sizeof value);
    return value;
}

}  // namespace

bool PageScan::add(std::string_view bytes) {
    rest_.append(bytes);
    const std::string_view all = rest_;
    if (page_bytes_ == 0) {
        if (all.size() < kMinPageBytes) return true;
        page_bytes_ = get(all, kSizePlace);
    }
    if (page_bytes_ < kMinPageBytes || page_bytes_ > kMaxPageBytes) return false;
    size_t at = 0;
    for (; at + page_bytes_ <= all.size(); at += page_bytes_, ++page_) {
        if (get(all, at + kNumberPlace) == page_) continue;
        misplaced_ = page_;
        return false;
    }
    rest_.erase(0, at);
    return true;
}

std::string other_than_a_tree(std::string_view beginning) {
    constexpr size_t kMagicPlace = 12;
    constexpr uint32_t kTreeMagic = 0x053162;
    if (beginning.empty()) return "is empty";
    if (beginning.find_first_not_of('\0') == std::string_view::npos) return "holds zeros where it begins";
    if (beginning.size() < kMinPageBytes) return "is cut short";
    if (get(beginning, kMagicPlace) != kTreeMagic)
        return "is another kind of file, and none that Crane has written";
    return "";
}

std::optional<uint64_t> find_misplaced_page(std::string_view bytes) {
    PageScan scan;
    scan.add(bytes);
    return scan.misplaced();
}

}  // namespace crane::paxos
