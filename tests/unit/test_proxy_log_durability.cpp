// What becomes of a database that was in the system's memory: kept in the same boot, lost in another, on disk
// after an end in order.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "proxy/log_durability.hpp"

using namespace crane::proxy;
namespace fs = std::filesystem;

namespace {

constexpr bool kMemory = true, kDisk = false;

struct StateDir {
    fs::path path;
    StateDir() {
        char name[] = "/tmp/crane-unit-XXXXXX";
        REQUIRE(mkdtemp(name));
        path = name;
    }
    ~StateDir() { fs::remove_all(path); }
    void fill(const std::string& text) const {
        fs::create_directories(path / "db");
        std::ofstream(path / "db" / "log.0000000001") << text;
    }
    std::string holds(const std::string& folder) const {
        std::ifstream file(path / folder / "log.0000000001");
        std::string text;
        std::getline(file, text);
        return text;
    }
    bool marked() const { return fs::exists(path / "log-in-memory"); }
};

}  // namespace

TEST_CASE("log durability: a log on disk is never marked, and never lost", "[proxy]") {
    const StateDir dir;
    LogDurability first(dir.path, kDisk, "boot 1");
    dir.fill("a");
    first.opened();
    CHECK_FALSE(dir.marked());
    CHECK_FALSE(LogDurability(dir.path, kDisk, "boot 2").lost());
    CHECK(dir.holds("db") == "a");
}

TEST_CASE("log durability: a log in memory outlives its process and not its boot", "[proxy]") {
    const StateDir dir;
    {
        LogDurability first(dir.path, kMemory, "boot 1");
        CHECK_FALSE(first.lost());
        CHECK(dir.marked());  // before there is a database
        first.opened();
    }
    dir.fill("a");
    CHECK_FALSE(LogDurability(dir.path, kMemory, "boot 1").lost());
    CHECK(dir.holds("db") == "a");

    LogDurability later(dir.path, kMemory, "boot 2");
    CHECK(later.lost());
    CHECK_FALSE(fs::exists(dir.path / "db"));
    CHECK(dir.holds("db.lost") == "a");

    SECTION("which is remembered until the new one is there") {
        CHECK(LogDurability(dir.path, kMemory, "boot 2").lost());
        dir.fill("half made");
        LogDurability again(dir.path, kMemory, "boot 2");
        CHECK(again.lost());
        CHECK(dir.holds("db.lost") == "half made");
        dir.fill("b");
        again.opened();
        CHECK_FALSE(LogDurability(dir.path, kMemory, "boot 2").lost());
        CHECK(dir.holds("db") == "b");
    }
    SECTION("nor if it was never seen on disk") {
        fs::remove_all(dir.path / "db.lost");
        CHECK(LogDurability(dir.path, kMemory, "boot 3").lost());
    }
    SECTION("nor under disk from now on") {
        dir.fill("b");
        LogDurability disk(dir.path, kDisk, "boot 3");
        CHECK(disk.lost());
        dir.fill("c");
        disk.opened();
        CHECK_FALSE(dir.marked());
        CHECK_FALSE(LogDurability(dir.path, kDisk, "boot 4").lost());
    }
}

TEST_CASE("log durability: an end in order, or a start under disk, makes it outlive the boot", "[proxy]") {
    const StateDir dir;
    LogDurability first(dir.path, kMemory, "boot 1");
    dir.fill("a");
    SECTION("an end") {
        first.closed();
    }
    SECTION("a start") {
        CHECK_FALSE(LogDurability(dir.path, kDisk, "boot 1").lost());
    }
    CHECK_FALSE(dir.marked());
    CHECK_FALSE(LogDurability(dir.path, kMemory, "boot 2").lost());
    CHECK(dir.holds("db") == "a");
}

TEST_CASE("log durability: a torn mark is of no boot", "[proxy]") {
    const StateDir dir;
    dir.fill("a");
    std::ofstream(dir.path / "log-in-memory") << "";
    CHECK(LogDurability(dir.path, kMemory, "boot 1").lost());
    CHECK(is_lost_with_memory(dir.path));
    accept_database(dir.path);
    CHECK_FALSE(is_lost_with_memory(dir.path));
}

TEST_CASE("log durability: the running system has a boot", "[proxy]") {
    CHECK(boot_id().size() == 36);
    CHECK(boot_id() == boot_id());
}
