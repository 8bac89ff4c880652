// A store's files, for tests that write and break them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "test_paxos_directory.hpp"

namespace crane::paxos::testing {

/// Builds a well-chained log.
struct Writer {
    Storage& store;
    LogPosition end;

    Entry next(View view, size_t size = 100) {
        Entry entry;
        entry.index = end.index + 1;
        entry.view = view;
        entry.value = std::make_shared<const std::string>(size, static_cast<char>('a' + entry.index % 26));
        entry.chain = chain_hash(end.chain, entry);
        end = {entry.index, entry.view, entry.chain};
        return entry;
    }
    void append(View view, unsigned count, size_t size = 100) {
        PersistBatch batch;
        for (; count > 0; --count) batch.append.push_back(next(view, size));
        store.persist(batch);
    }
    void promise(View view) {
        PersistBatch batch;
        batch.has_view = true;
        batch.view = view;
        store.persist(batch);
    }
};

inline std::string newest_log_file(const std::string& directory) {
    std::string newest;
    for (const auto& file : std::filesystem::directory_iterator(directory))
        if (file.path().filename().string().rfind("log.0", 0) == 0)
            newest = std::max(newest, file.path().string());
    return newest;
}

/// Log files are allocated ahead: their records end where the zeros begin.
inline uint64_t written_bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    return bytes.find_last_not_of('\0') + 1;
}

}  // namespace crane::paxos::testing
