#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "proxy/trapped_calls.hpp"

using namespace crane;

namespace {

void add_site(timebubble::TrapSite& site, uint32_t number, uint64_t calls, const char* object) {
    site.at = 0x7fff'0000'1000;
    site.number = number;
    site.offset = 0x1234;
    std::memcpy(site.object, object, std::min(sizeof(site.object), strlen(object)));
    site.calls = calls;
}

}  // namespace

TEST_CASE("trapped calls: told by their names, the places that make most of them first") {
    const auto trapped = std::make_unique<timebubble::TrappedCalls>();
    trapped->by_number[0] = 5;
    trapped->by_number[257] = 2;
    trapped->by_number[511] = 1;
    add_site(trapped->sites[3], 257, 2, "libc.so.6");
    add_site(trapped->sites[200], 0, 5, "redis-server");
    const nlohmann::json json = proxy::trapped_calls_json(*trapped);
    CHECK(json["all"] == 8);
    CHECK(json["calls"] == nlohmann::json({{"read", 5}, {"openat", 2}, {"511", 1}}));
    REQUIRE(json["sites"].size() == 2);
    CHECK(json["sites"][0] ==
          nlohmann::json({{"call", "read"}, {"from", "redis-server+0x1234"}, {"calls", 5}}));
    CHECK(json["sites"][1]["from"] == "libc.so.6+0x1234");
}

TEST_CASE("trapped calls: a domain that writes what it likes into the names does no harm") {
    const auto trapped = std::make_unique<timebubble::TrappedCalls>();
    const std::string endless(sizeof(timebubble::TrapSite::object), 'x');
    add_site(trapped->sites[0], 0xffff'ffff, 9, endless.c_str());
    add_site(trapped->sites[1], 1, 8, "\x1b[2J\n\xff");
    add_site(trapped->sites[2], 1, 7, "");
    const nlohmann::json json = proxy::trapped_calls_json(*trapped);
    CHECK(json["sites"][0]["from"] == endless + "+0x1234");
    CHECK(json["sites"][1]["from"] == "?[2J??+0x1234");
    CHECK(json["sites"][2]["from"] == "0x7fff00001000");
    CHECK_NOTHROW(json.dump());
}
