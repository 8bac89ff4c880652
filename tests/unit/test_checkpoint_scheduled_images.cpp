// Images of a server under the shim: it runs on as if nothing had been, and a restored one goes the same way.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/reserved_descriptors.hpp"
#include "checkpoint/criu.hpp"
#include "checkpoint/criu_program.hpp"
#include "checkpoint/domain_host.hpp"
#include "proxy/domain_link.hpp"
#include "proxy/segment.hpp"
#include "timebubble/batch.hpp"

namespace fs = std::filesystem;
using namespace crane;
using namespace crane::checkpoint;

namespace {

constexpr uint64_t kConnection = 7, kNow = 1'700'000'000'000'000'000, kGrant = 1'000'000;

/// A segment, craned's end of it, and all that came out.
struct Link {
    proxy::Segment segment;
    proxy::DomainLink link;
    std::string sent;          ///< to the client
    std::string sent_headers;  ///< clock and schedule hash of each of these
    bool listens = false;

    explicit Link(const std::string& state_dir)
        // Others may run the same tests on this machine.
        : segment(state_dir, "images" + std::to_string(::getpid()), 1, false), link(segment.view()) {
        timebubble::DomainSettings settings{};
        settings.policy = timebubble::Policy::kSerial;
        settings.quantum = 1000;
        settings.bubbles_enabled = 1;
        settings.schedule = 1;
        settings.virtual_cpus = 2;
        settings.virtual_memory_bytes = uint64_t{1} << 32;
        std::strcpy(settings.hostname, "crane");
        link.prepare(settings, timebubble::EgressPolicy::kRefuse, true);
    }
    std::vector<DomainSpec::Inherited> handed_down() const {
        return {{segment.inherited_transport(), kTransportPlace},
                {segment.inherited_doorbell(), kDoorbellPlace}};
    }
    void drain() {
        const auto take = [&](const timebubble::OutputHeader& header, std::string_view payload) {
            if (header.kind == timebubble::OutputKind::kListen) listens = true;
            if (header.kind != timebubble::OutputKind::kSend) return;
            sent += payload;
            sent_headers += std::to_string(header.clock) + ":" + std::to_string(header.schedule_hash) + " ";
        };
        link.drain(take, 1 << 20);
    }
    bool eventually(const std::function<bool()>& holds) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (std::chrono::steady_clock::now() < deadline) {
            drain();
            if (holds()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return false;
    }
    bool rests() {
        return eventually([&] { return link.unadmitted() == 0 && link.at_rest(); });
    }
};

/// Its folder goes whatever comes of the test.
struct RedisSpec : DomainSpec {
    std::string folder;
    RedisSpec() {
        char pattern[] = "/var/tmp/crane-images-XXXXXX";
        folder = ::mkdtemp(pattern);
        const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();
        name = "crane-test-" + folder.substr(folder.size() - 6);
        state_dir = folder + "/r1";
        fs::create_directories(state_dir);
        argv = {"/usr/bin/redis-server", "--save", "", "--appendonly", "no"};
        cwd = "/";
        environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
        init_path = bin / "crane-init";
        for (const char* lib : {"../lib", "../../lib"})  // the sanitizers' builds use the plain one
            if (fs::exists(bin / lib / "libcrane.so")) shim_path = bin / lib / "libcrane.so";
    }
    ~RedisSpec() {
        DomainHost::clean(*this);
        fs::remove_all(folder);
    }
    RedisSpec(const RedisSpec&) = delete;
    RedisSpec& operator=(const RedisSpec&) = delete;
};

bool can_take_images() {
    const bool can = ::geteuid() == 0 && fs::exists("/usr/bin/lxc-start") && !find_criu().empty() &&
                     fs::exists("/usr/bin/redis-server");
    if (!can) WARN("no root, no LXC, no CRIU or no Redis: images of scheduled servers are not tested");
    return can;
}

std::string genesis() {
    timebubble::BatchEncoder batch;
    const timebubble::GenesisPayload payload{};
    batch.add(timebubble::CallKind::kGenesis, 0, {reinterpret_cast<const char*>(&payload), sizeof payload});
    return batch.finish(kNow, kGrant);
}

std::string request(const std::string& text, uint64_t time_ns, bool connects) {
    timebubble::BatchEncoder batch;
    timebubble::ConnectPayload connect{};
    connect.listen_port = connect.local_port = 6379;
    connect.family = AF_INET;
    connect.peer_port = 40000;
    ::inet_pton(AF_INET, "127.0.0.1", connect.peer);
    ::inet_pton(AF_INET, "127.0.0.1", connect.local);
    if (connects)
        batch.add(timebubble::CallKind::kConnect, kConnection,
                  {reinterpret_cast<const char*>(&connect), sizeof connect});
    batch.add(timebubble::CallKind::kSend, kConnection, text);
    return batch.finish(time_ns, kGrant);
}

}  // namespace

TEST_CASE("a scheduled server feels no image taken, and restored it answers as it would have",
          "[checkpoint][root]") {
    if (!can_take_images()) return;
    RedisSpec spec;
    auto before = std::make_unique<Link>(spec.state_dir);
    spec.inherited = before->handed_down();
    DomainHost host(spec);
    host.start();
    REQUIRE(before->link.feed(1, genesis()));
    REQUIRE(before->eventually([&] { return before->listens; }));
    REQUIRE(before->rests());
    REQUIRE(before->link.feed(2, request("INCR x\r\n", kNow + 1000, true)));
    REQUIRE(before->eventually([&] { return before->sent == ":1\r\n"; }));
    REQUIRE(before->rests());

    const uint64_t hash = before->link.status().schedule_hash, clock = before->link.status().clock;
    host.take_image(spec.folder + "/images");
    CHECK(before->rests());
    CHECK(before->link.status().schedule_hash == hash);
    CHECK(before->link.status().clock == clock);
    before->sent_headers.clear();
    const std::string third = request("INCR x\r\n", kNow + 2000, false);
    REQUIRE(before->link.feed(3, third));
    REQUIRE(before->eventually([&] { return before->sent == ":1\r\n:2\r\n"; }));
    const std::string as_it_went = before->sent_headers;
    REQUIRE(host.kill_all(Files::kKept));
    before.reset();

    Link after(spec.state_dir);
    host.hand_down(after.handed_down());
    host.restore(spec.folder + "/images");
    REQUIRE(after.link.feed(3, third));
    CHECK(after.eventually([&] { return after.sent == ":2\r\n"; }));
    CHECK(after.sent_headers == as_it_went);
    CHECK(host.kill_all());
}

TEST_CASE("an image holds no file of the host in the place of the shim", "[checkpoint][root]") {
    if (!can_take_images()) return;
    RedisSpec spec;
    Link link(spec.state_dir);
    spec.inherited = link.handed_down();
    DomainHost host(spec);
    REQUIRE(link.link.feed(1, genesis()));
    host.start();
    REQUIRE(link.eventually([&] { return link.listens; }));
    REQUIRE(link.rests());
    // As a server can that is traced.
    const std::string shim = spec.state_dir + "/shared/libcrane.so";
    fs::rename(shim, shim + ".moved");
    fs::create_symlink("/etc/passwd", shim);
    CHECK_THROWS_WITH(host.take_image(spec.folder + "/images"), Catch::Contains("libcrane.so"));
    CHECK_FALSE(fs::exists(spec.folder + "/images/libcrane.so"));
    CHECK(host.kill_all());
}

TEST_CASE("a server that no input ever woke is woken when it is restored", "[checkpoint][root]") {
    if (!can_take_images()) return;
    RedisSpec spec;
    auto before = std::make_unique<Link>(spec.state_dir);
    spec.inherited = before->handed_down();
    DomainHost host(spec);
    REQUIRE(before->link.feed(1, genesis()));  // which it finds when it begins
    host.start();
    REQUIRE(before->eventually([&] { return before->listens; }));
    REQUIRE(before->rests());
    REQUIRE(before->link.words().input_rings == 0);
    const proxy::DomainWords words = before->link.words();
    host.take_image(spec.folder + "/images");
    REQUIRE(host.kill_all(Files::kKept));
    before.reset();

    Link after(spec.state_dir);
    after.link.prepare_restored(words, 1);
    host.hand_down(after.handed_down());
    host.restore(spec.folder + "/images");
    REQUIRE(after.link.feed(2, request("INCR x\r\n", kNow + 1000, true)));
    CHECK(after.eventually([&] { return after.sent == ":1\r\n"; }));
    CHECK(host.kill_all());
}
