// A replica that lacks a checkpoint gets one, byte for byte, while messages are lost and late, links are cut,
// sources die, disks give back what was not written to them, and its own craned is killed and started again.
#include <event2/event.h>
#include <stdlib.h>
#include <sys/mount.h>

#include <catch2/catch.hpp>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/checkpoint_store.hpp"
#include "proxy/checkpoint_mail.hpp"
#include "proxy/checkpoint_shipping.hpp"
#include "proxy/lack.hpp"
#include "tests/unit/test_shared_memory.hpp"

using namespace crane::proxy;
using crane::checkpoint::CheckpointStore;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMillisecondNs = 1'000'000;
constexpr uint32_t kChunk = 1000;

/// In memory: how long a disk takes to sync is not what is looked at.
struct TemporaryDirectory {
    std::string path;
    TemporaryDirectory() {
        path = crane::testing::in_shared_memory("checkpoints");
        REQUIRE(mkdtemp(path.data()) != nullptr);
    }
    ~TemporaryDirectory() { fs::remove_all(path); }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
};

/// The real files, on a disk that fails.
class FailingFiles final : public StoredCheckpointFiles {
  public:
    using StoredCheckpointFiles::StoredCheckpointFiles;
    bool rotten = false;  ///< what is read of files differs from what was written
    bool full = false;
    uint64_t reads = 0;

    std::string read(const ReadWords& wanted) override {
        std::string bytes = StoredCheckpointFiles::read(wanted);
        if (rotten && wanted.file != kManifestFile) bytes[bytes.size() / 2] ^= 1;
        ++reads;
        return bytes;
    }
    void append(size_t part, uint64_t offset, std::string_view bytes) override {
        if (full) throw std::runtime_error("no room: free some space");
        StoredCheckpointFiles::append(part, offset, bytes);
    }
};

/// One life of a craned, as far as checkpoints are concerned.
struct Daemon {
    struct Job {
        std::function<void()> job, done;
        bool ran = false;
    };
    std::shared_ptr<FailingFiles> files;
    std::deque<Job> jobs;
    CheckpointMail mail;
    uint64_t fetched = 0;
    std::vector<std::string> told;

    Daemon(const std::string& folder, const ShipSend& send, const FetchSettings& settings)
        : files(std::make_shared<FailingFiles>(folder, 0)),
          mail(
              files, send,
              [this](std::function<void()> job, std::function<void()> done) {
                  jobs.push_back({std::move(job), std::move(done)});
              },
              {[this](uint64_t index) { fetched = index; },
               [this](const std::string& text) { told.push_back(text); }},
              settings) {}

    /// Half a job: it may have run when the daemon is killed, and its end not be known.
    void work() {
        if (jobs.empty()) return;
        if (!jobs.front().ran) {
            jobs.front().job();
            jobs.front().ran = true;
            return;
        }
        const auto done = std::move(jobs.front().done);
        jobs.pop_front();
        done();
    }
};

class World {
  public:
    explicit World(uint64_t seed) : random_(seed) {}

    CheckpointStore store(uint32_t id) const {
        return CheckpointStore(directory_.path + "/r" + std::to_string(id));
    }
    Daemon& at(uint32_t id) { return *daemons_.at(id); }
    bool runs(uint32_t id) const { return daemons_.count(id) != 0; }

    void start(uint32_t id, uint64_t bytes_per_s = 1'000'000'000) {
        daemons_[id] = std::make_unique<Daemon>(
            store(id).folder(),
            [this, id](uint32_t to, const std::string& message) {
                if (!runs(to) || cut_.count({std::min(id, to), std::max(id, to)}) || one_in(full_))
                    return false;
                sent_bytes_ += message.size();
                if (!one_in(lose_))
                    wire_.push_back({id, to, message, now_ + random_() % 20 * kMillisecondNs});
                return true;
            },
            FetchSettings{bytes_per_s, kChunk, random_()});
        for (auto& [other, daemon] : daemons_)
            if (other != id && !cut_.count({std::min(id, other), std::max(id, other)})) {
                daemon->mail.on_link(id, true);
                at(id).mail.on_link(other, true);
            }
    }

    void kill(uint32_t id) {
        daemons_.erase(id);
        for (auto& [other, daemon] : daemons_) daemon->mail.on_link(id, false);
        std::erase_if(wire_, [&](const Message& one) { return one.from == id || one.to == id; });
    }

    void cut(uint32_t a, uint32_t b) {
        const std::pair link{std::min(a, b), std::max(a, b)};
        const bool up = cut_.erase(link) != 0;
        if (!up) cut_.insert(link);
        std::erase_if(wire_, [&](const Message& one) {
            return std::pair(std::min(one.from, one.to), std::max(one.from, one.to)) == link;
        });
        if (!runs(a) || !runs(b)) return;
        at(a).mail.on_link(b, up);
        at(b).mail.on_link(a, up);
    }

    void mend() {
        lose_ = full_ = 0;
        for (const auto& [a, b] : std::set(cut_)) cut(a, b);
    }
    void disturb(uint64_t lose, uint64_t full) {
        lose_ = lose;
        full_ = full;
    }

    void step() {
        now_ += random_() % 5 * kMillisecondNs;
        for (size_t left = wire_.size(); left > 0; --left) {
            // In order on each link, whatever happens on others.
            if (wire_.empty() || wire_.front().arrives_ns > now_) break;
            const Message one = std::move(wire_.front());
            wire_.pop_front();
            if (runs(one.to)) at(one.to).mail.on_message(one.from, one.bytes);
        }
        for (auto& [id, daemon] : daemons_) {
            if (one_in(2)) daemon->work();
            daemon->mail.tick(now_);
        }
    }

    /// True when it was met within the steps.
    bool run_until(const std::function<bool()>& met, int steps = 60'000) {
        for (; steps > 0 && !met(); --steps) step();
        return met();
    }
    void skip(uint64_t seconds) { now_ += seconds * 1'000'000'000; }

    /// Two of them with the same seed are the same.
    void take(uint32_t id, uint64_t index, uint64_t contents) {
        std::mt19937_64 random(contents);
        const std::string path = store(id).begin(index);
        const uint64_t sizes[] = {0, 1, kChunk, kChunk * 3 - 1, random() % (kChunk * 40)};
        for (size_t i = 0; i < std::size(sizes); ++i) {
            std::string bytes(sizes[i], '\0');
            for (char& c : bytes) c = static_cast<char>(random());
            std::ofstream(path + "/part" + std::to_string(i), std::ios::binary) << bytes;
        }
        store(id).complete(index, {{"connections", std::string(random() % 3000, 'c')}});
    }

    bool one_in(uint64_t n) { return n != 0 && random_() % n == 0; }
    uint64_t any(uint64_t n) { return random_() % n; }
    uint64_t now_ns() const { return now_; }
    uint64_t sent_bytes() const { return sent_bytes_; }

  private:
    struct Message {
        uint32_t from, to;
        std::string bytes;
        uint64_t arrives_ns;
    };

    TemporaryDirectory directory_;
    std::mt19937_64 random_;
    uint64_t now_ = 1'000'000'000;
    uint64_t lose_ = 0, full_ = 0;
    uint64_t sent_bytes_ = 0;
    std::set<std::pair<uint32_t, uint32_t>> cut_;
    std::deque<Message> wire_;
    std::map<uint32_t, std::unique_ptr<Daemon>> daemons_;
};

/// Replica 1 lacks what the others have.
void begin(World& world, uint64_t wanted) {
    for (const uint32_t id : {1, 2, 3}) world.start(id);
    world.at(1).mail.fetch().want(wanted);
}

size_t entries(const CheckpointStore& store) {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(store.folder()), fs::directory_iterator()));
}

void check_whole(const World& world, uint64_t index) {
    CHECK(world.store(1).newest()->index == index);
    CHECK(world.store(1).verify(index).empty());
    CHECK(entries(world.store(1)) == 1);
}

}  // namespace

TEST_CASE("checkpoints: a replica that lacks one fetches it, from a backup rather than the leader",
          "[proxy]") {
    World world(1);
    world.take(2, 50, 7);
    world.take(3, 60, 8);
    begin(world, 45);
    world.at(1).mail.fetch().set_leader(3);
    REQUIRE(world.run_until([&] { return world.at(1).fetched != 0; }));
    CHECK(world.at(1).fetched == 50);
    CHECK(world.at(3).files->reads == 0);
    check_whole(world, 50);
    CHECK(world.store(1).newest()->id == world.store(2).newest()->id);
    CHECK(world.at(1).mail.fetch().error().empty());
    CHECK(world.at(1).mail.idle());

    // The newest of what backups have; and what is here already is not fetched again.
    world.at(1).mail.fetch().set_leader(0);
    world.at(1).mail.fetch().want(51);
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 60; }));
    const uint64_t sent = world.sent_bytes();
    world.at(1).mail.fetch().want(40);
    world.at(1).fetched = 0;
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 60; }));
    CHECK(world.sent_bytes() == sent);
}

TEST_CASE("checkpoints: whatever is lost, cut, killed or damaged, the same bytes arrive", "[proxy]") {
    uint64_t restarts = 0, resumed = 0;
    const uint64_t seeds = getenv("CRANE_SOAK") ? 1500 : 60;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
        CAPTURE(seed);
        World world(seed);
        const bool same = seed % 3 != 0;
        world.take(2, 50, seed);
        world.take(3, same ? 50 : 55, same ? seed : seed + 1000);
        begin(world, 50);
        world.disturb(seed % 4 == 0 ? 0 : 30, seed % 4 == 1 ? 0 : 10);
        const uint32_t rotten = seed % 5 == 0 ? 2 : 0;
        for (int i = 0; i < 2000 && world.at(1).fetched == 0; ++i) {
            world.step();
            if (rotten != 0 && world.runs(rotten)) world.at(rotten).files->rotten = true;
            if (world.one_in(150)) {
                if (world.at(1).mail.fetch().progress().bytes > 0) ++resumed;
                world.kill(1);
                world.start(1);
                world.at(1).mail.fetch().want(50);
                ++restarts;
            }
            if (world.one_in(300)) world.cut(1, 2 + static_cast<uint32_t>(world.any(2)));
            const auto source = 2 + static_cast<uint32_t>(world.any(2));
            if (world.one_in(250)) world.runs(source) ? world.kill(source) : world.start(source);
            if (world.one_in(100)) world.at(1).files->full = world.one_in(2);
            if (world.one_in(400)) world.skip(world.any(15));
        }
        world.mend();
        world.at(1).files->full = false;
        for (const uint32_t id : {2, 3})
            if (!world.runs(id)) world.start(id);
        if (world.at(1).fetched == 0) {
            for (int i = 0; i < 20 && world.at(1).fetched == 0; ++i) {
                world.run_until([&] { return world.at(1).fetched != 0; }, 2000);
                world.skip(20);  // pauses, and what was wrong is forgiven
            }
        }
        REQUIRE(world.at(1).fetched >= 50);
        check_whole(world, world.at(1).fetched);
        CHECK(world.store(1).newest()->id == world.store(world.at(1).fetched == 50 ? 2 : 3).newest()->id);
        CHECK(world.at(1).mail.fetch().error().empty());
        for (const uint32_t id : {2, 3})
            CHECK(world.run_until([&] { return world.at(id).mail.source().idle(); }));
    }
    CHECK(restarts > seeds / 2);
    CHECK(resumed > seeds / 10);
}

TEST_CASE("checkpoints: a fetch goes on with another source, and with what is there after a restart",
          "[proxy]") {
    World world(3);
    world.take(2, 50, 7);
    world.take(3, 50, 7);
    const uint64_t total = world.store(2).newest()->manifest.bytes();
    begin(world, 50);
    const auto& fetch = [&]() -> CheckpointFetch& { return world.at(1).mail.fetch(); };
    REQUIRE(world.run_until([&] { return fetch().progress().bytes > total / 3; }));
    const uint32_t first = fetch().progress().source;
    CHECK(fetch().progress().total == total);
    world.kill(first);
    REQUIRE(world.run_until([&] { return fetch().progress().bytes > total * 2 / 3; }));
    CHECK(fetch().progress().source == 5 - first);
    world.kill(1);
    world.start(1);
    fetch().want(49);
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 50; }));
    check_whole(world, 50);
    // Hardly more than once over the wire.
    CHECK(world.sent_bytes() < total + total / 2);
}

TEST_CASE("checkpoints: a source whose disk is rotten is found out, and another one asked", "[proxy]") {
    World world(4);
    world.take(2, 50, 7);
    world.take(3, 50, 7);
    begin(world, 50);
    world.at(1).mail.fetch().set_leader(3);
    world.at(2).files->rotten = true;
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 50; }));
    check_whole(world, 50);
    CHECK(world.at(3).files->reads > 0);
    CHECK_THAT(world.at(1).told, Catch::VectorContains(std::string(
                                     "replica 2, which offers the checkpoint of entry 50, has sent it")));
}

TEST_CASE("checkpoints: where all are damaged the tries are bounded, and it is told until one comes",
          "[proxy]") {
    World world(5);
    world.take(2, 50, 7);
    world.take(3, 50, 7);
    const uint64_t total = world.store(2).newest()->manifest.bytes();
    begin(world, 50);
    world.at(2).files->rotten = world.at(3).files->rotten = true;
    for (int i = 0; i < 120; ++i) {
        world.run_until([&] { return world.at(1).fetched != 0; }, 500);
        world.skip(1);
    }
    CHECK(world.at(1).fetched == 0);
    CHECK_THAT(world.at(1).mail.fetch().error(), Catch::Contains("crane checkpoint verify"));
    CHECK(world.sent_bytes() < total * 5);
    CHECK(world.store(1).list().empty());
    world.take(3, 70, 9);
    world.at(3).files->rotten = false;
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 70; }));
    CHECK(world.at(1).mail.fetch().error().empty());
    check_whole(world, 70);
}

TEST_CASE("checkpoints: where nobody has one it is told, and asked again until somebody has", "[proxy]") {
    World world(6);
    world.take(2, 50, 7);
    begin(world, 80);
    const auto error = [&] { return world.at(1).mail.fetch().error(); };
    REQUIRE(world.run_until([&] { return !error().empty(); }));
    CHECK_THAT(error(), Catch::Contains("log entry 80 or later"));
    world.kill(2);
    world.kill(3);
    REQUIRE(world.run_until([&] { return error().find("no other replica answers") != std::string::npos; }));
    world.start(2);
    world.take(2, 81, 8);
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 81; }));
    CHECK(error().empty());
}

TEST_CASE("checkpoints: one that no server could be restored from is not fetched again, whoever offers it",
          "[proxy]") {
    World world(16);
    for (const uint32_t id : {1, 2, 3}) world.take(id, 50, 7);
    world.store(1).set_aside_refused(50);
    begin(world, 45);
    CheckpointFetch& fetch = world.at(1).mail.fetch();
    REQUIRE(world.run_until([&] { return fetch.wants_new_one(); }));
    CHECK_THAT(fetch.error(), Catch::Contains("asked to have a new one taken"));
    CHECK(world.at(2).files->reads + world.at(3).files->reads == 0);

    world.take(3, 50, 8);  // another one, and be it of the same entry
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 50; }));
    CHECK_FALSE(fetch.wants_new_one());
    CHECK(fetch.error().empty());
    CHECK(world.store(1).newest()->id == world.store(3).newest()->id);
}

TEST_CASE("checkpoints: a full disk is told, and what has come is kept", "[proxy]") {
    World world(7);
    world.take(2, 50, 7);
    const uint64_t total = world.store(2).newest()->manifest.bytes();
    begin(world, 50);
    const auto& fetch = world.at(1).mail.fetch();
    REQUIRE(world.run_until([&] { return fetch.progress().bytes > total / 2; }));
    world.at(1).files->full = true;
    REQUIRE(world.run_until([&] { return !fetch.error().empty(); }));
    CHECK_THAT(fetch.error(), Catch::Contains("free some space"));
    const uint64_t sent = world.sent_bytes();
    world.at(1).files->full = false;
    world.skip(10);
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 50; }));
    CHECK(world.sent_bytes() - sent < total);
}

// Room was looked for when a fetch began, and never again.
TEST_CASE("checkpoints: a fetch leaves the disk's reserve free, also when others fill it meanwhile",
          "[proxy]") {
    if (geteuid() != 0) return;  // who is not root can make no small disk
    constexpr size_t kMiB = 1 << 20;
    const TemporaryDirectory directory;
    CheckpointStore full(directory.path + "/full");
    const std::string part(8 * kMiB, 'f');
    std::ofstream(full.begin(9) + "/files.tar.zst", std::ios::binary) << part;
    const auto taken = full.complete(9, {});
    std::ifstream manifest(taken.path + "/manifest.json", std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(manifest), {});

    const std::string disk = directory.path + "/disk";
    fs::create_directories(disk);
    REQUIRE(mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=16m") == 0);
    {
        StoredCheckpointFiles files(disk + "/checkpoints", 4 * kMiB);
        size_t come = files.begin({9, taken.id}, text)[0].have;
        const auto next = [&] {
            files.append(0, come, std::string_view(part).substr(come, kMiB));
            come += kMiB;
        };
        while (come < 3 * kMiB) next();
        std::ofstream(disk + "/others", std::ios::binary) << std::string(8 * kMiB, 'o');
        CHECK_THROWS_WITH(next(), Catch::Contains("free some space"));
        CHECK_THROWS_WITH(next(), Catch::Contains("free some space"));
        REQUIRE(files.resume({9, taken.id})->at(0).have == come);  // what has come is kept
        CHECK_THROWS_WITH(next(), Catch::Contains("free some space"));
        fs::remove(disk + "/others");
        while (come < part.size()) next();
        CHECK(files.check(0, crane::checkpoint::never));
    }
    CHECK(umount(disk.c_str()) == 0);
}

TEST_CASE("checkpoints: what is no longer wanted stops at once, and a newer one takes its place", "[proxy]") {
    World world(8);
    world.take(2, 50, 7);
    begin(world, 50);
    auto& fetch = world.at(1).mail.fetch();
    REQUIRE(world.run_until([&] { return fetch.progress().bytes > 0; }));
    fetch.want(0);
    REQUIRE(world.run_until([&] { return world.at(1).mail.idle(); }));
    const uint64_t sent = world.sent_bytes();
    for (int i = 0; i < 1000; ++i) world.step();
    CHECK(world.sent_bytes() < sent + 10 * kChunk);
    CHECK(entries(world.store(1)) == 1);  // what has come of it
    fetch.want(50);
    REQUIRE(world.run_until([&] { return fetch.progress().bytes > 0; }));
    world.take(2, 60, 8);
    CHECK(world.at(2).mail.source().held(world.now_ns()) == std::set<uint64_t>{50});
    fetch.want(55);
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 60; }));
    check_whole(world, 60);
    CHECK(world.at(2).mail.source().held(world.now_ns() + 120'000 * kMillisecondNs).empty());
}

TEST_CASE("checkpoints: a checkpoint that its source removes is given up for the one that took its place",
          "[proxy]") {
    World world(9);
    world.take(2, 50, 7);
    begin(world, 50);
    REQUIRE(world.run_until([&] { return world.at(1).mail.fetch().progress().bytes > 0; }));
    world.take(2, 60, 8);
    world.store(2).remove(50);
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 60; }));
    check_whole(world, 60);
}

TEST_CASE("checkpoints: no more bytes in a second than the operator allows", "[proxy]") {
    World world(10);
    world.take(2, 50, 7);
    world.start(2, 50'000);
    world.start(1);
    world.at(1).mail.fetch().want(50);
    const uint64_t total = world.store(2).newest()->manifest.bytes(), began_ns = world.now_ns();
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 50; }));
    CHECK(world.now_ns() - began_ns > (total - 2 * kChunk) * 1'000'000'000 / 50'000);
}

TEST_CASE("checkpoints: two who fetch from one source do not keep each other waiting", "[proxy]") {
    World world(11);
    world.take(2, 50, 7);
    begin(world, 50);
    world.at(3).mail.fetch().want(50);
    const auto bytes = [&](uint32_t id) { return world.at(id).mail.fetch().progress().bytes; };
    REQUIRE(world.run_until([&] { return bytes(1) > 5 * kChunk && bytes(3) > 5 * kChunk; }));
    CHECK(world.at(1).fetched + world.at(3).fetched == 0);
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 50 && world.at(3).fetched == 50; }));
}

TEST_CASE("checkpoints: what a peer says that is not understood is dropped, and told once a minute",
          "[proxy]") {
    World world(12);
    world.take(2, 50, 7);
    begin(world, 50);
    auto& told = world.at(2).told;
    std::mt19937_64 random(1);
    for (int round = 0; round < 20'000; ++round) {
        std::string noise(random() % 70, '\0');
        for (char& c : noise) c = static_cast<char>(random());
        if (noise.size() > 2) {
            noise[0] = 1;
            noise[1] = static_cast<char>(1 + random() % 6);
        }
        world.at(2).mail.on_message(3, noise);
        world.at(1).mail.on_message(3, noise);
        if (round % 20 == 0) world.step();
    }
    CHECK(told.size() == 1);
    CHECK_THAT(told.at(0), Catch::Contains("the same version"));
    REQUIRE(world.run_until([&] { return world.at(1).fetched == 50; }));
    check_whole(world, 50);
}

TEST_CASE("checkpoints: all that replicas say about them comes out of its encoding as it went in",
          "[proxy]") {
    const CheckpointName name{7, std::string(32, 'b')};
    const auto again = [](const CheckpointWords& words) {
        const std::string message = encode(words);
        const auto read = decode_checkpoint_words(message);
        REQUIRE(read);
        CHECK(encode(*read) == message);
        CHECK_FALSE(decode_checkpoint_words(message.substr(0, 2)));
        if (!std::holds_alternative<ChunkWords>(words)) {
            for (size_t cut = 0; cut < message.size(); ++cut)
                CHECK_FALSE(decode_checkpoint_words(message.substr(0, cut)));
            CHECK_FALSE(decode_checkpoint_words(message + "x"));
        }
        std::string other = message;
        other[0] = 2;  // of a version to come
        CHECK_FALSE(decode_checkpoint_words(other));
    };
    again(AskWords{1, 2});
    again(OffersWords{3, {}});
    again(OffersWords{3, {{name, 100, 200}, {name, 1, 0}}});
    again(ReadWords{4, name, 2, 300, kShipChunkBytes});
    again(ChunkWords{5, "bytes"});
    again(RefusalWords{6});
    CHECK_FALSE(decode_checkpoint_words(encode(ReadWords{4, name, 2, 300, kShipChunkBytes + 1})));
    CHECK_FALSE(decode_checkpoint_words(encode(ReadWords{4, name, 2, 300, 0})));
    CHECK_FALSE(decode_checkpoint_words(encode(ReadWords{4, {0, name.id}, 2, 300, 1})));
    CHECK_FALSE(decode_checkpoint_words(encode(ReadWords{4, {7, std::string(32, '/')}, 2, 300, 1})));
    CHECK_FALSE(decode_checkpoint_words(encode(OffersWords{3, {{name, UINT64_MAX, 200}}})));
    CHECK_FALSE(decode_checkpoint_words(encode(ChunkWords{5, std::string(kShipChunkBytes + 1, 'x')})));
}

TEST_CASE(
    "checkpoints: shipped with the threads, clock and disk of a daemon, which can end in the midst of it",
    "[proxy]") {
    const TemporaryDirectory directory;
    event_base* const base = event_base_new();
    CheckpointStore full(directory.path + "/full"), empty(directory.path + "/empty");
    const std::string path = full.begin(9);
    std::ofstream(path + "/files.tar.zst", std::ios::binary) << std::string(5 << 20, 'f');
    full.complete(9, {{"clock", 1}});
    {
        std::deque<std::pair<uint32_t, std::string>> wire;
        uint64_t fetched = 0;
        const auto send = [&](uint32_t to, const std::string& message) {
            wire.emplace_back(to, message);
            return true;
        };
        const auto files = [](const CheckpointStore& store) {
            return std::make_shared<StoredCheckpointFiles>(store.folder(), 0);
        };
        CheckpointShipping source(base, files(full), 1'000'000'000, send, nullptr);
        CheckpointShipping target(base, files(empty), 1'000'000'000, send,
                                  [&](uint64_t index) { fetched = index; });
        CHECK(target.status().is_null());
        target.want(9);
        CHECK(target.status()["wanted"] == 9);
        source.on_link(1, true);
        target.on_link(2, true);
        const auto run_until = [&](const std::function<bool()>& met) {
            while (!met()) {
                event_base_loop(base, EVLOOP_ONCE);
                for (; !wire.empty(); wire.pop_front()) {
                    const auto& [to, message] = wire.front();
                    (to == 1 ? target : source).on_message(3 - to, message);
                }
            }
        };
        run_until([&] { return fetched != 0; });
        CHECK(fetched == 9);
        CHECK(target.alarm().empty());
        CHECK(target.status().is_null());
        CHECK(source.held() == std::set<uint64_t>{9});
        CHECK(empty.verify(9).empty());
        CHECK(empty.newest()->id == full.newest()->id);
        // In the midst of the next one it is ended, job and all.
        std::ofstream(full.begin(10) + "/files.tar.zst", std::ios::binary) << std::string(5 << 20, 'g');
        full.complete(10, {});
        target.want(10);
        run_until([&] { return target.status()["bytes"] != 0; });
    }
    event_base_free(base);
    CHECK(empty.newest()->index == 9);
}

// One that had fetched a checkpoint only to keep it took itself for complete, and stood still for ever.
TEST_CASE("a held checkpoint does not stand for the log before it", "[checkpoints]") {
    const uint64_t index = 1346, behind = 1322;
    CHECK(lack_step({index, behind, 0, 0, false}) == LackStep::kFetch);
    SECTION("it is held: the server begins from it, once") {
        CHECK(lack_step({index, behind, index, 0, false}) == LackStep::kBegin);
        CHECK(lack_step({index, behind, index + 5, 0, false}) == LackStep::kBegin);
        CHECK(lack_step({index, behind, index, 0, true}) == LackStep::kNone);
        CHECK(lack_step({index, behind, index - 1, 0, false}) == LackStep::kFetch);
    }
    SECTION("it is under way to be kept: it comes to be begun from") {
        CHECK(lack_step({index, behind, 0, index, false}) == LackStep::kFetch);
        CHECK(lack_step({index, behind, 0, index, true}) == LackStep::kNone);
        CHECK(lack_step({index, behind, 0, index - 1, true}) == LackStep::kFetch);
    }
    SECTION("the log has come after all") {
        CHECK(lack_step({index, index, index, 0, false}) == LackStep::kNone);
    }
}
