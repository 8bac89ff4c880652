// The tree's pages, looked at piece by piece.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>

#include "paxos/store/page_scan.hpp"

using namespace crane::paxos;

namespace {

std::string file_of(uint32_t pages, uint32_t page_bytes) {
    std::string bytes(size_t{pages} * page_bytes, 'x');
    for (uint32_t page = 0; page < pages; ++page)
        std::memcpy(bytes.data() + size_t{page} * page_bytes + 8, &page, sizeof page);
    std::memcpy(bytes.data() + 20, &page_bytes, sizeof page_bytes);
    return bytes;
}

std::optional<uint64_t> scan_in_pieces(std::string_view bytes, std::mt19937& random) {
    PageScan scan;
    while (!bytes.empty()) {
        const size_t piece = std::min<size_t>(bytes.size(), 1 + random() % 9000);
        if (!scan.add(bytes.substr(0, piece))) break;
        bytes.remove_prefix(piece);
    }
    return scan.misplaced();
}

}  // namespace

TEST_CASE("paxos page scan: however a file is cut into pieces, the same page is found", "[paxos]") {
    std::mt19937 random(1);
    for (uint32_t page_bytes : {512u, 4096u, 5000u, 65536u}) {
        std::string bytes = file_of(40, page_bytes);
        bytes += "half a page";
        CHECK_FALSE(find_misplaced_page(bytes));
        CHECK_FALSE(scan_in_pieces(bytes, random));
        std::memset(bytes.data() + size_t{17} * page_bytes, 0, page_bytes);
        CHECK(find_misplaced_page(bytes) == 17u);
        CHECK(scan_in_pieces(bytes, random) == 17u);
    }
    CHECK_FALSE(scan_in_pieces("", random));
    CHECK_FALSE(scan_in_pieces(std::string(100'000, 'z'), random));  // not such a file
}
