// What craned keeps of itself in a checkpoint comes back as it was, and nothing else is believed.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "proxy/checkpoint_state.hpp"

using namespace crane::proxy;
namespace paxos = crane::paxos;

namespace {

CheckpointState example() {
    CheckpointState state;
    state.cluster = "0123456789abcdef0123456789abcdef";
    state.generation = 3;
    state.start_batch = std::string("\0\xff any bytes", 11);
    state.position = {77, paxos::make_view(4, 2), 0xfedcba9876543210};
    state.membership.index = 5;
    state.membership.membership.add({1, true, "host:1"});
    state.membership.membership.add({4, false, "other:2"});
    state.membership.membership.highest_id = 4;
    paxos::Origin origin;
    origin.database = 8;
    origin.start = 2;
    origin.run = 9;
    state.starts.record(1, origin);
    state.output = {1234, 76, {1, ~uint64_t{0}}};
    state.admission = {76, {2, 3}, 4};
    state.last_numbers[{2, 80}] = 99;
    state.last_numbers[{2, 443}] = 98;
    state.server_ends = 2;
    state.last_end = "the server exited with status 1";
    state.program = "0123 /usr/sbin/server\n";
    return state;
}

}  // namespace

TEST_CASE("checkpoint state: all of it comes back", "[checkpoint]") {
    const CheckpointState state = example();
    CheckpointState back;
    REQUIRE(from_json(nlohmann::json::parse(to_json(state).dump()), back) == "");
    CHECK(back.cluster == state.cluster);
    CHECK(back.generation == state.generation);
    CHECK(back.start_batch == state.start_batch);
    CHECK(back.position == state.position);
    CHECK(back.membership.index == state.membership.index);
    CHECK(back.membership.membership == state.membership.membership);
    CHECK(back.starts == state.starts);
    CHECK(back.output.records == state.output.records);
    CHECK(back.output.admitted_index == state.output.admitted_index);
    CHECK(back.output.chain == state.output.chain);
    CHECK(back.admission.index == state.admission.index);
    CHECK(back.admission.output == state.admission.output);
    CHECK(back.admission.schedule_hash == state.admission.schedule_hash);
    CHECK(back.last_numbers == state.last_numbers);
    CHECK(back.server_ends == state.server_ends);
    CHECK(back.last_end == state.last_end);
    CHECK(back.program == state.program);
}

TEST_CASE("checkpoint state: the first server may run there, and begins nowhere", "[checkpoint]") {
    CheckpointState state = example();
    state.generation = 1;
    state.start_batch.clear();
    CheckpointState back;
    CHECK(from_json(to_json(state), back) != "");
    state.live.emplace();
    state.live->timestamp_ns = 9;
    REQUIRE(from_json(to_json(state), back) == "");
    REQUIRE(back.live);
    CHECK(back.live->timestamp_ns == 9);
    nlohmann::json odd = to_json(state);
    odd["live"] = "odd";
    CHECK(from_json(odd, back) != "");
}

TEST_CASE("checkpoint state: where a new cluster begins no starts of databases are known", "[checkpoint]") {
    CheckpointState state = example();
    state.starts = {};
    CheckpointState back = example();
    REQUIRE(from_json(to_json(state), back) == "");
    CHECK(back.starts.empty());
}

TEST_CASE("checkpoint state: what is missing or of another kind is said, and nothing is taken",
          "[checkpoint]") {
    const nlohmann::json good = to_json(example());
    for (const auto& [key, value] : good.items()) {
        CAPTURE(key);
        CheckpointState untouched;
        nlohmann::json odd = good;
        odd.erase(key);
        if (key == "program") {  // which earlier versions did not keep
            CheckpointState old;
            CHECK(from_json(odd, old) == "");
            CHECK(old.program.empty());
        } else {
            CHECK(from_json(odd, untouched) != "");
        }
        odd[key] = nlohmann::json::array({"odd"});
        CHECK(from_json(odd, untouched) != "");
        CHECK(untouched.generation == 0);
    }
    for (const char* key : {"start_batch", "starts"}) {
        CAPTURE(key);
        CheckpointState state;
        nlohmann::json odd = good;
        odd[key] = "0g";
        CHECK(from_json(odd, state) != "");
        odd[key] = "012";
        CHECK(from_json(odd, state) != "");
    }
    CheckpointState state;
    CHECK(from_json(nullptr, state) != "");
}
