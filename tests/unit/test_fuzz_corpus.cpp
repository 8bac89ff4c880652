// The inputs that fuzzing has kept, again: each took a path of its own, or broke something once.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/fuzz/targets.hpp"

namespace fs = std::filesystem;

TEST_CASE("fuzz: every kept input of every target still holds") {
    for (const crane::fuzz::Target& target : crane::fuzz::targets()) {
        const fs::path folder = fs::path("tests/fuzz/corpus") / target.name;
        REQUIRE(fs::is_directory(folder));  // run from the tree's root
        size_t inputs = 0;
        for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
            INFO(entry.path());
            std::ifstream in(entry.path(), std::ios::binary);
            std::ostringstream bytes;
            bytes << in.rdbuf();
            CHECK_NOTHROW(target.run(bytes.str()));
            ++inputs;
        }
        INFO(target.name);
        CHECK(inputs >= 5);
    }
}

TEST_CASE("fuzz: a target notices what must not be") {
    REQUIRE_THROWS_AS(crane::fuzz::must(false, "canary"), crane::fuzz::Violation);
}
