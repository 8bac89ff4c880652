#include "paxos/store/page_scan.hpp"

#include <cstring>

namespace crane::paxos {
namespace {

constexpr size_t number_place = 8;  // in every page, behind the place of its last change in the log
constexpr size_t size_place = 20;   // in the first page
constexpr uint32_t min_page_bytes = 512, max_page_bytes = 65536;

uint32_t get(std::string_view bytes, size_t place) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + place, sizeof value);
    return value;
}

}  // namespace

std::optional<uint64_t> find_misplaced_page(std::string_view bytes) {
    if (bytes.size() < min_page_bytes) return std::nullopt;
    const uint32_t page_bytes = get(bytes, size_place);
    if (page_bytes < min_page_bytes || page_bytes > max_page_bytes) return std::nullopt;
    for (uint64_t page = 0; (page + 1) * page_bytes <= bytes.size(); ++page)
        if (get(bytes, page * page_bytes + number_place) != page) return page;
    return std::nullopt;
}

}  // namespace crane::paxos
