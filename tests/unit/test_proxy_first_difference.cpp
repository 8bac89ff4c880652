// What replicas have put out where they differ: the tail that each keeps, and the sides of all.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "proxy/first_difference.hpp"

using namespace crane::proxy;
using crane::timebubble::AdmittedRecord;
using crane::timebubble::OutputHeader;
using crane::timebubble::OutputKind;

namespace {

/// A server that answers, as its replica sees it.
class Server {
  public:
    void send(uint64_t connection, const std::string& text) {
        add(OutputKind::kSend, connection, text, sent_);
        sent_ += text.size();
    }
    void close(uint64_t connection) { add(OutputKind::kClose, connection, "", 0); }
    void admit(uint64_t index) {
        const AdmittedRecord record{index, 0};
        add(OutputKind::kAdmitted, 0, std::string(reinterpret_cast<const char*>(&record), sizeof(record)), 0);
    }
    std::vector<TailRecord> up_to(uint64_t index) const { return tail_.up_to(index); }

  private:
    void add(OutputKind kind, uint64_t connection, const std::string& text, uint64_t offset) {
        OutputHeader header{};
        header.kind = kind;
        header.connection = connection;
        OutputLogRecord record{};
        record.kind = static_cast<uint16_t>(kind);
        record.connection = connection;
        record.bytes = static_cast<uint32_t>(text.size());
        if (in_chain(record.kind)) chain_ = next_chain(chain_, record, hash_payload(text));
        tail_.add(number_++, header, text, offset, chain_);
    }

    OutputTail tail_;
    Hash128 chain_;
    uint64_t number_ = 0, sent_ = 0;
};

/// Of three replicas, of which the third is `odd`.
nlohmann::json found(const Server& well, const Server& odd, uint64_t index) {
    FirstDifference first;
    first.heard(index, 1, well.up_to(index), 100);
    first.heard(index, 2, decode_tail(encode_tail(well.up_to(index))), 101);
    first.heard(index, 3, decode_tail(encode_tail(odd.up_to(index))), 102);
    return first.json();
}

}  // namespace

TEST_CASE("first difference: all sides of the first record that differs, with the bytes around", "[proxy]") {
    CHECK(FirstDifference().json().is_null());
    Server well, odd;
    for (Server* one : {&well, &odd}) {
        one->send(0xab, "equal\r\n");
        one->admit(6);
        one->send(0xab, std::string(100, 'x') + (one == &odd ? "cos\x01os" : "client"));
        one->send(0xab, "equal again");
        one->admit(7);
        one->admit(8);
    }
    const auto out = found(well, odd, 7);
    CHECK(out["index"] == 7);
    CHECK(out["record"] == 2);
    CHECK(out["exact"] == true);
    CHECK(out["byte"] == 101);
    REQUIRE(out["sides"].size() == 3);
    CHECK(out["sides"][0]["connection"] == "ab");
    CHECK(out["sides"][0]["offset"] == 7);
    CHECK(out["sides"][0]["bytes"] == 106);
    CHECK(out["sides"][0]["excerpt_from"] == 69);
    CHECK(out["sides"][0]["excerpt"] == std::string(31, 'x') + "client");
    CHECK(out["sides"][1]["excerpt"] == out["sides"][0]["excerpt"]);
    CHECK(out["sides"][2]["excerpt"] == std::string(31, 'x') + "cos\\x01os");
}

TEST_CASE("first difference: one that has put out less, or something else", "[proxy]") {
    Server well, silent, closing;
    for (Server* one : {&well, &silent, &closing}) one->admit(4);
    well.send(1, "answer");
    closing.close(1);
    for (Server* one : {&well, &silent, &closing}) one->admit(5);
    const auto less = found(well, silent, 5);
    CHECK(less["record"] == 1);
    CHECK(less["sides"][2]["call"] == "admitted");
    CHECK_FALSE(less["sides"][2].contains("excerpt"));
    CHECK(less["byte"].is_null());
    const auto other = found(well, closing, 5);
    CHECK(other["sides"][0]["call"] == "send");
    CHECK(other["sides"][2]["call"] == "close");
}

TEST_CASE("first difference: what is beyond what is kept is not made up", "[proxy]") {
    Server well, odd;
    const std::string large(OutputTail::kBeginningBytes, 'x');
    for (Server* one : {&well, &odd}) {
        one->send(1, large + (one == &odd ? "b" : "a"));
        one->admit(1);
    }
    const auto out = found(well, odd, 1);
    CHECK(out["record"] == 0);
    CHECK(out["exact"] == false);  // nothing before it is known to be equal
    CHECK(out["byte"].is_null());  // it is behind what is kept
    for (uint64_t index = 2; index < 2 + OutputTail::kRecords; ++index) odd.admit(index);
    CHECK(odd.up_to(1).empty());
    CHECK(found(well, odd, 1)["record"].is_null());
    CHECK(odd.up_to(0).empty());
}

TEST_CASE("first difference: an answer is bounded, and one that is cut off is read as far as it goes",
          "[proxy]") {
    Server well;
    for (int i = 0; i < 2000; ++i) well.send(1, std::string(OutputTail::kBeginningBytes, 'x'));
    well.admit(9);
    const std::string sent = encode_tail(well.up_to(9));
    CHECK(sent.size() <= OutputTail::kAnswerBytes);
    CHECK(decode_tail(sent).back().number == 2000);
    const size_t all = decode_tail(sent).size();
    for (const size_t cut : {size_t{1}, size_t{60}, size_t{600}})
        CHECK(decode_tail(std::string_view(sent).substr(0, sent.size() - cut)).size() < all);
    CHECK(decode_tail("").empty());
    CHECK(decode_tail(std::string(200, '\xff')).empty());
}

TEST_CASE("first difference: what is told of two places at once does not mix", "[proxy]") {
    Server well;
    well.send(1, "a");
    well.admit(1);
    well.admit(2);
    FirstDifference first;
    for (const uint64_t index : {1u, 2u}) first.heard(index, 1, well.up_to(index), 100);
    Server odd;
    odd.send(1, "b");
    odd.admit(1);
    odd.admit(2);
    for (const uint64_t index : {1u, 2u}) first.heard(index, 2, odd.up_to(index), 100);
    CHECK(first.json()["index"] == 2);
    CHECK(first.json()["sides"].size() == 2);
}
