// A directory for a test's database, removed with the object, and the store that the tests keep in it.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "paxos/store/store.hpp"

namespace crane::paxos::testing {

struct TemporaryDirectory {
    std::string path;
    TemporaryDirectory() {
        char name[] = "/tmp/crane-unit-store-XXXXXX";
        REQUIRE(mkdtemp(name) != nullptr);
        path = name;
    }
    ~TemporaryDirectory() { std::filesystem::remove_all(path); }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
};

inline StoreOptions options(const std::string& directory) {
    StoreOptions options;
    options.directory = directory;
    options.cluster_id = "cluster-a";
    options.replica = 2;
    return options;
}

}  // namespace crane::paxos::testing
