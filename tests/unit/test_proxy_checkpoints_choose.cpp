// Which of its checkpoints a replica starts from: what it cannot use now is not thrown away for it, and what
// it has summed is not read again.
#include <event2/event.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "checkpoint/checkpoint_store.hpp"
#include "proxy/checkpoints.hpp"
#include "tests/unit/test_paxos_directory.hpp"

using namespace crane::proxy;
using crane::checkpoint::CheckpointStore;
using crane::checkpoint::index_text;
using crane::checkpoint::KnownSums;
namespace fs = std::filesystem;

namespace {

CheckpointState state_at(uint64_t index, const std::string& cluster) {
    CheckpointState state;
    state.cluster = cluster;
    state.generation = 2;
    state.start_batch = "a batch";
    state.position = {index, crane::paxos::make_view(1, 1), 7};
    state.membership.membership.add({1, true, "host:1"});
    state.membership.membership.highest_id = 1;
    return state;
}

/// A replica's directory, with its checkpoints of entries 40 and 50.
struct Fixture {
    crane::paxos::testing::TemporaryDirectory directory;
    std::unique_ptr<event_base, decltype(&event_base_free)> base{event_base_new(), event_base_free};
    Config config;
    CheckpointStore store{directory.path + "/checkpoints"};

    Fixture() {
        config.cluster_id = "right";
        config.state_dir = directory.path;
        for (const uint64_t index : {40, 50}) take(index);
    }
    void take(uint64_t index) {
        std::ofstream(store.begin(index) + "/files.tar.zst") << "the server's files";
        store.complete(index, to_json(state_at(index, "right")));
    }
    /// Where the replica would start from; 0: from nothing.
    uint64_t chosen() {
        const Checkpoints checkpoints(base.get(), config);
        return checkpoints.from() ? checkpoints.from()->position.index : 0;
    }
    std::string place(uint64_t index, const char* prefix = "") const {
        return store.folder() + "/" + prefix + index_text(index);
    }
    std::set<std::string> entries() const {
        std::set<std::string> out;
        for (const auto& entry : fs::directory_iterator(store.folder())) out.insert(entry.path().filename());
        return out;
    }
    std::string manifest(const std::string& folder) const {
        std::ifstream in(folder + "/manifest.json", std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    void write_manifest(const std::string& folder, const std::string& text) const {
        std::ofstream(folder + "/manifest.json", std::ios::binary) << text;
    }
};

/// Whole, and written by a Crane to come.
std::string of_another_version(const std::string& manifest) {
    const std::string begin = "{\"manifest\":", version = "\"version\":1";
    std::string body = manifest.substr(begin.size(), manifest.rfind(",\"xxh128\"") - begin.size());
    body.replace(body.find(version), version.size(), "\"version\":9");
    return begin + body + ",\"xxh128\":\"" + crane::checkpoint::sum_of(body) + "\"}\n";
}

}  // namespace

TEST_CASE("checkpoints: the newest whole one is begun from, and a damaged one is set aside", "[proxy]") {
    Fixture at;
    CHECK(at.chosen() == 50);
    std::ofstream(at.place(50) + "/files.tar.zst") << "the server's FILES";
    CHECK(at.chosen() == 40);
    CHECK(at.entries() == std::set<std::string>{index_text(40), ".damaged-" + index_text(50)});
    std::ofstream(at.place(40) + "/files.tar.zst") << "cut";
    CHECK(at.chosen() == 0);
    CHECK(at.entries() == std::set<std::string>{".damaged-" + index_text(40), ".damaged-" + index_text(50)});
}

// They were set aside as damaged, and removed with the next that was kept: the log was cut behind them.
TEST_CASE("checkpoints: a wrong cluster_id or state_dir costs a replica none of its checkpoints", "[proxy]") {
    Fixture at;
    at.store.begin(60);
    const auto before = at.entries();
    at.config.cluster_id = "wrong";
    CHECK_THROWS_WITH(at.chosen(), Catch::Contains("belongs to cluster right, not to wrong") &&
                                       Catch::Contains("check cluster_id and state_dir"));
    CHECK(at.entries() == before);
    at.config.cluster_id = "right";
    CHECK(at.chosen() == 50);
}

TEST_CASE("checkpoints: one of another version is kept for the program that reads it", "[proxy]") {
    Fixture at;
    const std::string manifest = at.manifest(at.place(50));
    at.write_manifest(at.place(50), of_another_version(manifest));
    CHECK_THAT(at.store.survey()[0].error, Catch::Contains("use the Crane that has written it"));
    CHECK(at.chosen() == 40);
    CHECK(at.entries() == std::set<std::string>{index_text(40), ".unread-" + index_text(50)});
    at.take(45);
    at.take(46);
    at.store.prune(2);
    CHECK(at.chosen() == 46);  // and it is looked at each time
    CHECK(at.entries() == std::set<std::string>{index_text(45), index_text(46), ".unread-" + index_text(50)});
    REQUIRE(at.store.set_aside().size() == 1);
    CHECK((at.store.set_aside()[0].unread && !at.store.set_aside()[0].damaged));
    at.write_manifest(at.place(50, ".unread-"), manifest);
    CHECK(at.chosen() == 50);
    CHECK(at.store.set_aside().empty());
}

TEST_CASE("checkpoints: one that cannot be read now is none that is damaged", "[proxy]") {
    Fixture at;
    const std::string file = at.place(50) + "/manifest.json", elsewhere = at.directory.path + "/manifest";
    fs::rename(file, elsewhere);
    fs::create_symlink(elsewhere, file);  // which is not followed
    CHECK(at.chosen() == 40);
    CHECK(at.entries() == std::set<std::string>{index_text(40), ".unread-" + index_text(50)});
    SECTION("it can, later") {
        fs::rename(elsewhere, at.place(50, ".unread-") + "/manifest.json");
        CHECK(at.chosen() == 50);
    }
    SECTION("another has taken its place") {
        at.take(50);
        CHECK(at.chosen() == 50);
        CHECK(at.entries().count(".unread-" + index_text(50)) == 1);
    }
    SECTION("what was taken from there on is distrusted") {
        fs::rename(elsewhere, at.place(50, ".unread-") + "/manifest.json");
        Checkpoints(at.base.get(), at.config).distrust(45);
        CHECK(at.chosen() == 40);
    }
}

// At each time that the server was made anew the newest was read whole, in the loop: of many gigabytes that
// took longer than systemd's watchdog waits.
TEST_CASE("checkpoints: one that this process has summed is not read again when the server is made anew",
          "[proxy]") {
    Fixture at;
    const auto sums = std::make_shared<KnownSums>();
    int reads = 0;
    const auto made_anew = [&] {
        reads = 0;
        return Checkpoints(at.base.get(), at.config, sums, [&reads] { ++reads; }).from()->position.index;
    };
    CHECK(made_anew() == 50);
    CHECK(reads > 0);
    CHECK(made_anew() == 50);
    CHECK(reads == 0);
    // Taken, or come from another replica: its sums are known from there.
    at.store = CheckpointStore(at.store.folder(), sums);
    at.take(60);
    CHECK(made_anew() == 60);
    CHECK(reads == 0);
    // Written to since then, and be it in the same size.
    std::ofstream(at.place(60) + "/files.tar.zst") << "the server's FILES";
    CHECK(made_anew() == 50);
    CHECK(reads > 0);
    CHECK(at.entries().count(".damaged-" + index_text(60)) == 1);
}

TEST_CASE("checkpoints: the sum of a file is not known any more when anything of it has changed", "[proxy]") {
    const crane::paxos::testing::TemporaryDirectory directory;
    const std::string path = directory.path + "/file";
    KnownSums sums;
    const auto is_read = [&] {
        bool read = false;
        sums.sum_of(crane::checkpoint::File(path, O_RDONLY), [&read] {
            read = true;
            return false;
        });
        return read;
    };
    std::ofstream(path) << "bytes";
    CHECK(is_read());
    CHECK_FALSE(is_read());
    timespec times[2]{};
    REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
    CHECK(is_read());
    fs::rename(path, path + "-before");
    std::ofstream(path) << "other";
    REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
    CHECK(is_read());
    CHECK_FALSE(is_read());
    std::ofstream(path, std::ios::app) << "more";
    CHECK(is_read());
}

TEST_CASE("checkpoints: those that no server could be restored from are begun from again by the next craned",
          "[proxy]") {
    Fixture at;
    for (const uint64_t index : {50, 40}) {
        Checkpoints checkpoints(at.base.get(), at.config);
        REQUIRE(checkpoints.from());
        CHECK(checkpoints.from()->position.index == index);
        checkpoints.refuse("CRIU does not know this kernel");
        CHECK_THAT(checkpoints.error(), Catch::Contains("tried again"));
    }
    CHECK(at.chosen() == 0);  // the server is made anew: not in this process
    Checkpoints::try_refused_again(at.config);
    CHECK(at.chosen() == 50);
}

TEST_CASE("checkpoints: a refused one of what differs from the others' is not tried again", "[proxy]") {
    Fixture at;
    {
        Checkpoints checkpoints(at.base.get(), at.config);
        checkpoints.refuse("CRIU does not know this kernel");
        checkpoints.distrust(45);
    }
    Checkpoints::try_refused_again(at.config);
    CHECK(at.chosen() == 40);
}

TEST_CASE("checkpoints: one that comes to be distrusted while it is kept is no checkpoint", "[proxy]") {
    Fixture at;
    Checkpoints checkpoints(at.base.get(), at.config);
    const auto pack = [&](uint64_t index) {
        checkpoints.packer(index);  // the host's part is done here: there are its files
        std::ofstream(at.store.begin(index) + "/files.tar.zst") << "the server's files";
    };
    std::optional<bool> kept;
    const auto keep = [&](uint64_t index) {
        kept.reset();
        checkpoints.packed(state_at(index, "right"), "", {}, [&](bool is_kept) { kept = is_kept; });
    };
    const auto end = [&] {
        while (!kept) event_base_loop(at.base.get(), EVLOOP_ONCE);
    };
    pack(60);
    SECTION("before it is packed") {
        checkpoints.distrust(55);
        keep(60);
    }
    SECTION("in the midst of it, or when it has just been published") {
        keep(60);
        checkpoints.distrust(55);
    }
    end();
    CHECK_FALSE(*kept);
    CHECK_FALSE(at.store.find(60));
    CHECK_THAT(checkpoints.error(), Catch::Contains("not wanted"));
    CHECK(at.store.find(50));

    pack(70);
    checkpoints.distrust(71);
    keep(70);
    end();
    CHECK(*kept);
    CHECK(at.store.find(70));
}
