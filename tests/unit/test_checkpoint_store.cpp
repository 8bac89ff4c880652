// What is on a replica's disk as a checkpoint: complete or not there, whatever was cut short or damaged.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>

#include "checkpoint/arriving_checkpoint.hpp"
#include "checkpoint/checkpoint_store.hpp"
#include "tests/unit/test_paxos_directory.hpp"

using namespace crane::checkpoint;
using crane::paxos::testing::TemporaryDirectory;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

void write_text(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

struct Fixture {
    TemporaryDirectory directory;
    CheckpointStore store{directory.path + "/checkpoints"};

    StoredCheckpoint take(uint64_t index, const std::string& text = "the files") {
        const std::string path = store.begin(index);
        write_text(path + "/files.tar.zst", text);
        write_text(path + "/image.tar.zst", text + text);
        return store.complete(index, {{"clock", index * 10}});
    }
    std::string at(uint64_t index, const char* file) const {
        return store.folder() + "/" + index_text(index) + "/" + file;
    }
    std::vector<uint64_t> complete() const {
        std::vector<uint64_t> out;
        for (const StoredCheckpoint& one : store.list()) out.push_back(one.index);
        return out;
    }
    size_t entries() const {
        return static_cast<size_t>(
            std::distance(fs::directory_iterator(store.folder()), fs::directory_iterator()));
    }
};

}  // namespace

TEST_CASE("checkpoint store: what was taken is there with its state, for the owner alone") {
    Fixture at;
    CHECK(at.store.list().empty());
    CHECK_FALSE(at.store.newest());
    const StoredCheckpoint taken = at.take(7);
    CHECK(taken.error.empty());
    CHECK(taken.manifest.state == json{{"clock", 70}});
    REQUIRE(taken.manifest.files.size() == 2);
    CHECK(taken.manifest.files[0].name == "files.tar.zst");
    CHECK(taken.manifest.bytes() == 27);
    CHECK(at.store.verify(7).empty());
    CHECK(at.entries() == 1);
    struct stat info {};
    REQUIRE(stat(at.store.folder().c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0700);
    CHECK(CheckpointStore(at.store.folder()).newest()->id == taken.id);  // as after a restart
}

TEST_CASE("checkpoint store: equal contents have equal ids on all replicas, others do not") {
    Fixture one, other;
    CHECK(one.take(7).id == other.take(7).id);
    CHECK(one.take(8).id != other.take(8, "other files").id);
    CHECK(one.take(9).id != one.store.find(7)->id);
}

TEST_CASE("checkpoint store: the newest is the one of the highest entry, and may be replaced") {
    Fixture at;
    at.take(100);
    at.take(20);
    at.take(3);
    CHECK(at.complete() == std::vector<uint64_t>{100, 20, 3});
    CHECK(at.store.newest()->index == 100);
    CHECK(at.store.list(1).size() == 1);
    const std::string before = at.store.find(20)->id;
    CHECK(at.take(20, "taken again").id != before);
    CHECK(read_text(at.at(20, "files.tar.zst")) == "taken again");
    CHECK(at.store.verify(20).empty());
    CHECK(at.entries() == 3);
}

TEST_CASE("checkpoint store: a crash at any step of taking one leaves those before it, and nothing else") {
    Fixture at;
    at.take(5);
    const std::string path = at.store.begin(6);
    CHECK(at.complete() == std::vector<uint64_t>{5});
    write_text(path + "/files.tar.zst", "half");
    CHECK(at.complete() == std::vector<uint64_t>{5});
    write_text(path + "/manifest.json", read_text(at.at(5, "manifest.json")).substr(0, 40));
    CHECK(at.complete() == std::vector<uint64_t>{5});
    SECTION("the next start removes it") {
        at.store.remove_unfinished();
        CHECK(at.entries() == 1);
    }
    SECTION("taking it again does not find what was left") {
        at.take(6, "whole");
        CHECK(at.complete() == std::vector<uint64_t>{6, 5});
        CHECK(at.entries() == 2);
    }
    SECTION("in the midst of replacing one that was there") {
        fs::rename(at.at(5, ""), at.store.folder() + "/.old-" + index_text(5));
        CHECK(at.complete().empty());
        at.store.remove_unfinished();
        CHECK(at.entries() == 0);
    }
}

TEST_CASE("checkpoint store: a damaged one is told, passed over, and survives nothing newer") {
    Fixture at;
    at.take(5);
    at.take(6);
    const std::string manifest = read_text(at.at(6, "manifest.json"));
    SECTION("without its manifest") {
        fs::remove(at.at(6, "manifest.json"));
        CHECK_THAT(at.store.survey()[0].error, Catch::Contains("manifest.json"));
    }
    SECTION("with half a manifest") {
        write_text(at.at(6, "manifest.json"), manifest.substr(0, manifest.size() / 2));
        CHECK_THAT(at.store.survey()[0].error, Catch::Contains("no whole manifest"));
    }
    SECTION("with a manifest in which a byte has changed") {
        std::string changed = manifest;
        changed[changed.find("60")] = '7';  // in the caller's state
        write_text(at.at(6, "manifest.json"), changed);
        CHECK_THAT(at.store.survey()[0].error, Catch::Contains("sum"));
    }
    SECTION("with another's manifest") {
        write_text(at.at(6, "manifest.json"), read_text(at.at(5, "manifest.json")));
        CHECK_THAT(at.store.survey()[0].error, Catch::Contains("is of entry 5"));
    }
    SECTION("with a file missing") {
        fs::remove(at.at(6, "image.tar.zst"));
        CHECK_THAT(at.store.survey()[0].error, Catch::Contains("image.tar.zst is missing"));
    }
    SECTION("with a file cut") {
        fs::resize_file(at.at(6, "image.tar.zst"), 3);
        CHECK_THAT(at.store.survey()[0].error, Catch::Contains("3 bytes instead of 18"));
    }
    SECTION("with a file that leads elsewhere") {
        fs::remove(at.at(6, "image.tar.zst"));
        fs::create_symlink("/etc/passwd", at.at(6, "image.tar.zst"));
        CHECK_THAT(at.store.survey()[0].error, Catch::Contains("no regular file"));
    }
    CHECK(at.store.survey().size() == 2);
    CHECK(at.complete() == std::vector<uint64_t>{5});
    CHECK(at.store.newest()->index == 5);
    CHECK_FALSE(at.store.verify(6).empty());
    at.store.prune(1);  // it may be the newest there is: an operator shall see it
    CHECK(at.store.survey().size() == 2);
    at.take(7);
    at.store.prune(1);
    CHECK(at.entries() == 1);
}

TEST_CASE("checkpoint store: a changed byte is found by verify, which can be stopped") {
    Fixture at;
    at.take(5, std::string(3 << 20, 'x'));
    std::fstream file(at.at(5, "image.tar.zst"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4 << 20);
    file.put('y');
    file.close();
    CHECK(at.complete() == std::vector<uint64_t>{5});
    CHECK_THAT(at.store.verify(5), Catch::Contains("image.tar.zst is not what was written"));
    int asked = 0;
    CHECK_THROWS_AS(at.store.verify(5, [&] { return ++asked == 3; }), Stopped);
    CHECK_THAT(at.store.verify(9), Catch::Contains("manifest.json"));
}

TEST_CASE("checkpoint store: taking one can be stopped, and what cannot be part of one is refused") {
    Fixture at;
    std::string path = at.store.begin(5);
    write_text(path + "/files.tar.zst", "text");
    CHECK_THROWS_AS(at.store.complete(5, {}, [] { return true; }), Stopped);
    CHECK(at.entries() == 0);
    path = at.store.begin(5);
    fs::create_directory(path + "/folder");
    CHECK_THROWS_WITH(at.store.complete(5, {}), Catch::Contains("cannot be part of a checkpoint"));
    path = at.store.begin(5);
    CHECK_THROWS_WITH(at.store.complete(5, {{"text", "\xff"}}), Catch::Contains("is no text"));
    path = at.store.begin(5);
    CHECK_THROWS_WITH(at.store.complete(5, std::string(kMaxManifestBytes, 'x')),
                      Catch::Contains("larger than a manifest"));
    CHECK(at.entries() == 0);
    at.store.begin(5);
    at.store.abandon(5);
    CHECK(at.entries() == 0);
}

TEST_CASE("checkpoint store: a full disk leaves nothing of it, and says what to do") {
    Fixture at;
    at.take(5);
    const std::string path = at.store.begin(6);
    write_text(path + "/files.tar.zst", "small");
    // In a child: no file may grow beyond 64 bytes, and the manifest is larger.
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit small{64, 64};
        if (setrlimit(RLIMIT_FSIZE, &small) != 0) _exit(2);
        try {
            at.store.complete(6, {});
        } catch (const std::runtime_error& error) {
            _exit(std::string(error.what()).find("free some space") != std::string::npos ? 0 : 3);
        }
        _exit(4);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(at.entries() == 1);
    CHECK(at.complete() == std::vector<uint64_t>{5});
}

TEST_CASE("checkpoint store: what belongs to others stays, and does no harm") {
    Fixture at;
    at.take(5);
    const std::vector<std::string> foreign = {"README",
                                              ".new-5",
                                              ".old-",
                                              "00000000000000000000",
                                              "99999999999999999999",
                                              "0000000000000000005x",
                                              ".fetch-00000000000000000001-short",
                                              "lost+found"};
    for (const std::string& name : foreign) write_text(at.store.folder() + "/" + name, "not ours");
    write_text(at.at(5, "note"), "of the operator");
    at.store.remove_unfinished();
    at.store.prune(1);
    CHECK(at.complete() == std::vector<uint64_t>{5});
    CHECK(at.store.survey().size() == 1);
    CHECK(at.entries() == foreign.size() + 1);
    CHECK(at.store.verify(5).empty());
    write_text(at.store.folder() + "/" + index_text(6), "a file where a folder should be");
    CHECK(at.complete() == std::vector<uint64_t>{5});
}

TEST_CASE("checkpoint store: pruning leaves the newest, and those that somebody reads") {
    Fixture at;
    for (const uint64_t index : {1, 2, 3, 4, 5}) at.take(index);
    at.store.prune(2, {2, 5});
    CHECK(at.complete() == std::vector<uint64_t>{5, 4, 2});
    at.store.prune(2);
    CHECK(at.complete() == std::vector<uint64_t>{5, 4});
    at.store.remove(5);
    at.store.remove(5);
    CHECK(at.complete() == std::vector<uint64_t>{4});
    CHECK(at.entries() == 1);
}

TEST_CASE("checkpoint store: one that is set aside is none any more, and goes when a new one is kept") {
    Fixture fixture;
    fixture.take(5);
    fixture.take(9);
    fixture.store.set_aside(9);
    CHECK(fixture.complete() == std::vector<uint64_t>{5});
    CHECK(fixture.entries() == 2);  // it can still be looked at
    REQUIRE(fixture.store.set_aside().size() == 1);
    const SetAside aside = fixture.store.set_aside()[0];
    CHECK((aside.index == 9 && aside.damaged && fs::is_directory(aside.path)));
    fixture.store.set_aside(7);  // there is none
    fixture.take(9, "another");
    fixture.store.set_aside(9);
    CHECK(fixture.entries() == 2);
    fixture.take(12);
    fixture.store.prune(2);
    CHECK(fixture.complete() == std::vector<uint64_t>{12, 5});
    CHECK(fixture.entries() == 2);
}

TEST_CASE("checkpoint store: of those that no server could be restored from the newest are whole") {
    Fixture fixture;
    std::set<std::string> ids;
    for (const uint64_t index : {9, 7, 5, 3}) {
        ids.insert(fixture.take(index).id);
        fixture.store.set_aside_refused(index);
        fixture.store.set_aside_refused(index);  // said twice
    }
    CHECK(fixture.complete().empty());
    CHECK(fixture.store.refused() == ids);
    REQUIRE(fixture.store.set_aside().size() == 4);
    CHECK_FALSE(fixture.store.set_aside()[0].damaged);
    fixture.store.put_back_refused();
    CHECK(fixture.complete() == std::vector<uint64_t>{9, 7});
    for (const uint64_t index : {9, 7}) CHECK(fixture.store.verify(index).empty());
    // Refused again, they wait for the next one.
    for (const uint64_t index : {9, 7}) fixture.store.set_aside_refused(index);
    CHECK(fixture.complete().empty());
    fixture.take(8);
    fixture.store.prune(2);
    CHECK(fixture.store.refused().size() == 1);  // newer than all that there is else
    fixture.store.put_back_refused();
    CHECK(fixture.complete() == std::vector<uint64_t>{9, 8});
    fixture.store.set_aside_refused(9);
    fixture.take(12);
    fixture.store.prune(2);
    CHECK(fixture.store.refused().empty());
}

TEST_CASE("checkpoint store: a refused one does not come back that holds what differs, nor over another") {
    Fixture fixture;
    for (const uint64_t index : {5, 9}) {
        fixture.take(index);
        fixture.store.set_aside_refused(index);
    }
    fixture.store.give_up_refused(6);
    const std::string id = fixture.take(5, "another").id;
    fixture.store.put_back_refused();
    CHECK(fixture.complete() == std::vector<uint64_t>{5});
    CHECK(fixture.store.newest()->id == id);
}

TEST_CASE("checkpoint manifest: whatever a file or a peer says, there is an answer and no exception") {
    Manifest manifest;
    manifest.index = 12;
    manifest.files = {{"files.tar.zst", 9, std::string(32, 'a')}};
    manifest.state = {{"a", {1, 2, 3}}};
    const std::string text = encode_manifest(manifest);
    const DecodedManifest read = decode_manifest(text);
    CHECK(read.error.empty());
    CHECK(read.manifest.files == manifest.files);
    CHECK(read.manifest.state == manifest.state);
    CHECK(json::parse(text)["xxh128"] == read.id);
    const auto with_sum = [](const std::string& body) {
        return "{\"manifest\":" + body + ",\"xxh128\":\"" + sum_of(body) + "\"}\n";
    };
    const std::string sum = "\"xxh128\":\"" + std::string(32, 'a') + "\"";
    const auto file = [&](const std::string& name, const std::string& bytes) {
        return with_sum("{\"version\":1,\"index\":1,\"files\":[{\"name\":\"" + name +
                        "\",\"bytes\":" + bytes + "," + sum + "}]}");
    };
    CHECK(decode_manifest(file("files.tar", "1")).error.empty());
    for (const char* name : {"", "..", ".hidden", "../passwd", "a/b", "manifest.json", "a\\u0000b", "a b"})
        CHECK_THAT(decode_manifest(file(name, "1")).error, Catch::Contains("cannot be part"));
    for (const char* bytes : {"-1", "1.5", "\"1\"", "null", "1e3", "99999999999999999999999"})
        CHECK_FALSE(decode_manifest(file("a", bytes)).error.empty());
    CHECK_THAT(decode_manifest(file("a", "18446744073709551615")).error, Catch::Contains("too large"));
    CHECK_THAT(decode_manifest(with_sum("{\"version\":2,\"index\":1,\"files\":[]}")).error,
               Catch::Contains("version 2"));
    for (const std::string body :
         {"", "null", "[]", "{}", "{\"version\":1}", "{\"version\":1,\"index\":0,\"files\":[]}",
          "{\"version\":1,\"index\":1,\"files\":{}}", "{\"version\":1,\"index\":1,\"files\":[1]}",
          "nonsense"})
        CHECK_FALSE(decode_manifest(with_sum(body)).error.empty());
    const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
    CHECK_FALSE(decode_manifest(with_sum("{\"version\":1,\"index\":1,\"files\":[],\"state\":" + deep + "}"))
                    .error.empty());
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        std::string noise = text;
        for (int changes = 0; changes < 3; ++changes)
            noise[random() % noise.size()] = static_cast<char>(random());
        const DecodedManifest one =
            decode_manifest(noise.substr(0, noise.size() - (round % 2 ? 0 : random() % 50)));
        CHECK((noise == text || !one.error.empty()));
    }
    manifest.files.push_back(manifest.files[0]);
    CHECK_THROWS_WITH(encode_manifest(manifest), Catch::Contains("twice"));
}

TEST_CASE("checkpoint store: what is kept of the disk is no more than a twentieth of it") {
    Fixture at;
    at.take(5);
    at.store.check_reserve(1, "/tmp");
    at.store.check_reserve(UINT64_MAX, "/tmp");  // there is more than a twentieth
    CHECK_THROWS_WITH(at.store.check_room(1ULL << 62, 0), Catch::Contains("free some space"));
    if (geteuid() != 0) return;
    const std::string small = at.store.folder() + "/../small";
    fs::create_directories(small);
    REQUIRE(mount("tmpfs", small.c_str(), "tmpfs", 0, "size=1m") == 0);
    std::ofstream(small + "/most") << std::string(900'000, 'x');
    at.store.check_reserve(UINT64_MAX, small);
    std::ofstream(small + "/rest") << std::string(120'000, 'x');
    CHECK_THROWS_WITH(at.store.check_reserve(UINT64_MAX, small),
                      Catch::Contains("are left where " + small + " is: free some space"));
    CHECK(umount(small.c_str()) == 0);
}

TEST_CASE("checkpoint store: one that arrives in pieces goes on where a crash has left it") {
    Fixture source, target;
    const StoredCheckpoint taken = source.take(9, std::string(1000, 'f'));
    const std::string manifest = read_text(source.at(9, "manifest.json"));
    const CheckpointName which{9, taken.id};
    CHECK_FALSE(ArrivingCheckpoint::resume(target.store, which));
    CHECK_THROWS_WITH(ArrivingCheckpoint::begin(target.store, which, "not it", 0),
                      Catch::Contains("no whole manifest"));
    CHECK_THROWS_WITH(ArrivingCheckpoint::begin(target.store, which, manifest, UINT64_MAX),
                      Catch::Contains("free some space"));
    ArrivingCheckpoint::begin(target.store, which, manifest, 0).append(0, 0, std::string(600, 'f'));
    CHECK(target.complete().empty());
    const auto resumed = ArrivingCheckpoint::resume(target.store, which);
    REQUIRE(resumed);
    CHECK(resumed->have(0) == 600);
    CHECK_THROWS_WITH(resumed->append(0, 700, "x"), Catch::Contains("has changed"));
    resumed->append(0, 600, std::string(400, 'f'));
    CHECK(resumed->check(0, never));
    resumed->append(1, 0, std::string(2000, 'g'));
    CHECK_FALSE(resumed->check(1, never));
    CHECK(resumed->have(1) == 0);
    resumed->append(1, 0, std::string(2000, 'f'));
    CHECK(resumed->check(1, never));
    target.store.remove_unfinished();  // there is no complete one that would make it worthless
    resumed->publish(target.store);
    CHECK(target.store.newest()->id == taken.id);
    CHECK(target.store.verify(9).empty());
    CHECK(target.entries() == 1);

    // What was left of another fetch goes when it is worth nothing.
    ArrivingCheckpoint::begin(target.store, {9, taken.id}, manifest, 0);
    CHECK(list_arriving(target.store) == std::vector<CheckpointName>{{9, taken.id}});
    target.store.remove_unfinished();
    CHECK(target.entries() == 1);
}
