// The Berkeley DB store: what is left of writes that were cut short.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "test_paxos_store_files.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;
namespace fs = std::filesystem;

TEST_CASE("paxos store: a torn tail is cut off, never served") {
    const TemporaryDirectory directory;
    const std::string original = directory.path + "/original", copy = directory.path + "/copy";
    BdbStore store(options(original));
    Writer writer{store, {}};
    writer.promise(make_view(1, 1));
    writer.append(make_view(1, 1), 10);
    std::vector<uint64_t> chains(1);
    for (int i = 0; i < 20; ++i) {
        writer.append(make_view(1, 1), 1, 500);
        chains.push_back(writer.end.chain);
    }
    for (uint64_t torn : {1u, 7u, 600u, 3000u, 9000u}) {
        for (bool garbage : {false, true}) {
            INFO("torn bytes " << torn << " garbage " << garbage);
            fs::remove_all(copy);
            fs::copy(original, copy, fs::copy_options::recursive);  // what a crash would leave
            const std::string log = newest_log_file(copy);
            const uint64_t size = written_bytes(log);
            if (garbage) {
                std::fstream file(log, std::ios::in | std::ios::out | std::ios::binary);
                std::string tail(torn, '\0');
                file.seekg(static_cast<std::streamoff>(size - torn));
                REQUIRE(file.read(tail.data(), static_cast<std::streamsize>(torn)));
                // Each byte another one: what happened to stand there already would be no damage.
                for (uint64_t i = 0; i < torn; ++i) tail[i] = static_cast<char>(tail[i] + 1 + i * 37 % 255);
                file.seekp(static_cast<std::streamoff>(size - torn));
                file.write(tail.data(), static_cast<std::streamsize>(torn));
            } else {
                fs::resize_file(log, size - torn);
            }
            BdbStore recovered(options(copy));
            if (garbage) REQUIRE_THAT(recovered.recovery(), Catch::Contains("dropped the last"));
            const uint64_t last = recovered.load().end.index;
            REQUIRE(last >= 10);
            REQUIRE(last < 30);
            REQUIRE((last == 10 || recovered.load().end.chain == chains.at(last - 10)));
            std::vector<Entry> entries;
            recovered.read(1, last, SIZE_MAX, entries);
            REQUIRE(entries.size() == last);
        }
    }
}

TEST_CASE("paxos store: nothing is said to be dropped from a log that was closed or killed between writes") {
    const TemporaryDirectory directory;
    const std::string copy = directory.path + "/copy";
    for (int round = 0; round < 3; ++round) {
        BdbStore store(options(directory.path + "/original"));
        REQUIRE(store.recovery().empty());
        Writer writer{store, store.load().end};
        if (round == 0) writer.promise(make_view(1, 1));
        writer.append(make_view(1, 1), 10, 500);
        fs::remove_all(copy);
        fs::copy(directory.path + "/original", copy, fs::copy_options::recursive);
        BdbStore killed(options(copy));
        REQUIRE(killed.recovery() == "");
        REQUIRE(killed.load().end.index == 10u * static_cast<unsigned>(round + 1));
    }
}

TEST_CASE("paxos store: a cut within what was written together keeps what comes before it") {
    const TemporaryDirectory directory;
    const View first = make_view(1, 1), second = make_view(2, 3);
    LogPosition end;
    {
        BdbStore store(options(directory.path));
        Writer writer{store, {}};
        writer.promise(first);
        writer.append(first, 4);
        const LogPosition kept = writer.end;
        writer.append(first, 6);
        writer.append(first, 3);
        PersistBatch batch;
        batch.has_view = true;
        batch.view = second;
        SECTION("inside of a batch, replaced") {
            writer.end = kept;
            const Entry fifth = writer.next(first), sixth = writer.next(first);
            batch.truncate_from = 7;
            batch.append.push_back(writer.next(second));
        }
        SECTION("inside of the first batch, nothing appended") {
            writer.end = {};
            for (int i = 0; i < 2; ++i) writer.next(first);
            batch.truncate_from = 3;
        }
        SECTION("between two batches") {
            writer.end = kept;
            batch.truncate_from = 5;
            for (int i = 0; i < 12; ++i) batch.append.push_back(writer.next(second));
        }
        store.persist(batch);
        end = writer.end;
        std::vector<Entry> entries;
        REQUIRE_THROWS_AS(store.read(end.index + 1, end.index + 1, 1, entries), DamagedStore);
    }
    BdbStore store(options(directory.path));
    REQUIRE(store.load().end == end);
    std::vector<Entry> entries;
    store.read(1, end.index, SIZE_MAX, entries);
    REQUIRE(entries.size() == end.index);
    uint64_t chain = 0;
    for (const Entry& entry : entries) {
        REQUIRE(entry.chain == chain_hash(chain, entry));
        chain = entry.chain;
    }
}
