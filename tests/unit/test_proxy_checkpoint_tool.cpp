// crane checkpoint: what an operator is told of the checkpoints on disk.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

#include "checkpoint/arriving_checkpoint.hpp"
#include "proxy/tool/tools.hpp"
#include "tests/unit/test_paxos_directory.hpp"

using namespace crane;
using checkpoint::CheckpointStore;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// What a call prints, and its exit status.
struct Said {
    int status;
    std::string text;
};

struct Cluster {
    paxos::testing::TemporaryDirectory directory;

    CheckpointStore store(int replica) const {
        const std::string folder = directory.path + "/r" + std::to_string(replica);
        fs::create_directories(folder);
        return CheckpointStore(folder + "/checkpoints");
    }
    void take(int replica, uint64_t index) const {
        CheckpointStore at = store(replica);
        const std::string path = at.begin(index);
        std::ofstream(path + "/files.tar.zst") << std::string(12'345, 'f');
        at.complete(index, {{"clock", 1}});
    }
    Said say(const proxy::CheckpointRequest& request, bool as_json) const {
        std::ostringstream out;
        const std::unique_ptr<std::streambuf, void (*)(std::streambuf*)> before(
            std::cout.rdbuf(out.rdbuf()), [](std::streambuf* one) { std::cout.rdbuf(one); });
        const int status = proxy::tool_checkpoint(directory.path, request, as_json);
        return {status, out.str()};
    }
};

}  // namespace

TEST_CASE("crane checkpoint: what there is, how large, how old, and whose", "[proxy]") {
    const Cluster cluster;
    cluster.store(1);
    CHECK_THAT(cluster.say({"list"}, false).text, Catch::Contains("no checkpoints"));
    CHECK_FALSE(fs::exists(cluster.directory.path + "/r1/checkpoints"));  // looking makes nothing
    cluster.take(1, 7);
    cluster.take(2, 7);
    cluster.take(2, 90);
    const Said said = cluster.say({"list"}, false);
    CHECK(said.status == proxy::kExitOk);
    CHECK_THAT(said.text, Catch::Contains("replica 2  entry 90  12 kB  "));
    CHECK_THAT(said.text, Catch::Contains(" s ago"));
    const json all = json::parse(cluster.say({"list"}, true).text);
    REQUIRE(all["checkpoints"].size() == 3);
    CHECK(all["checkpoints"][0]["id"] == all["checkpoints"][2]["id"]);  // equal contents
    CHECK(all["checkpoints"][1]["files"][0]["bytes"] == 12'345);
    CHECK(json::parse(cluster.say({"list", 1}, true).text)["checkpoints"].size() == 1);
    CHECK_THROWS_WITH(cluster.say({"list", 5}, true), Catch::Contains("holds no replica 5"));
}

TEST_CASE("crane checkpoint: what is damaged is told, by list from sizes and by verify from contents",
          "[proxy]") {
    const Cluster cluster;
    cluster.take(1, 7);
    cluster.take(1, 8);
    CHECK(cluster.say({"verify"}, false).status == proxy::kExitOk);
    const std::string file = cluster.store(1).find(8)->path + "/files.tar.zst";
    std::ofstream(file) << std::string(12'345, 'g');
    CHECK(json::parse(cluster.say({"list"}, true).text)["checkpoints"][0]["complete"] == true);
    const Said said = cluster.say({"verify"}, false);
    CHECK(said.status == proxy::kExitNo);
    CHECK_THAT(said.text, Catch::Contains("entry 8  12 kB  NOT SOUND: " + file));
    CHECK_THAT(said.text, Catch::Contains("entry 7  12 kB  sound"));
    CHECK(json::parse(cluster.say({"verify"}, true).text)["sound"] == false);
    std::ofstream(file) << "short";
    CHECK_THAT(cluster.say({"list"}, false).text, Catch::Contains("entry 8  DAMAGED: " + file));
}

TEST_CASE("crane checkpoint: one that arrives is shown with how much has come", "[proxy]") {
    const Cluster cluster;
    cluster.take(1, 7);
    const auto taken = cluster.store(1).newest();
    std::ifstream in(taken->path + "/manifest.json");
    const std::string manifest{std::istreambuf_iterator<char>(in), {}};
    checkpoint::ArrivingCheckpoint::begin(cluster.store(2), {7, taken->id}, manifest, 0)
        .append(0, 0, std::string(5000, 'f'));
    CHECK_THAT(cluster.say({"list"}, false).text,
               Catch::Contains("replica 2  entry 7  arriving: 5.0 kB of 12 kB"));
    const json arriving = json::parse(cluster.say({"list", 2}, true).text)["arriving"];
    REQUIRE(arriving.size() == 1);
    CHECK(arriving[0]["bytes"] == 5000);
    CHECK(arriving[0]["total"] == 12'345);
}
