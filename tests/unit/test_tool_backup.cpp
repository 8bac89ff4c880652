// The record of a backup: what comes from a file that anybody may have touched.
#include <catch2/catch.hpp>
#include <string>

#include "checkpoint/file_sum.hpp"
#include "proxy/tool/backup_record.hpp"

using namespace crane::proxy;

namespace {

BackupRecord some_record() {
    BackupRecord record;
    record.crane = "1.2.3";
    record.cluster = "web";
    record.index = 4711;
    record.id = std::string(crane::checkpoint::kSumDigits, 'a');
    record.bytes = 1 << 20;
    record.taken_s = 1'700'000'000;
    record.settings = UINT64_MAX;
    record.launched = {{"identity", {{"command", {"apache2"}}}}};
    record.config = "cluster_id = \"web\"\n";
    return record;
}

std::string why_not(const std::string& text) {
    try {
        backup_record_from(text, "FILE");
        return "";
    } catch (const std::runtime_error& error) {
        return error.what();
    }
}

}  // namespace

TEST_CASE("backup: a record says what it said") {
    const BackupRecord record = some_record();
    const BackupRecord read = backup_record_from(to_json(record).dump(), "FILE");
    REQUIRE(to_json(read) == to_json(record));
    REQUIRE(read.settings == record.settings);
}

TEST_CASE("backup: a record that a bit was turned in is refused, wherever it was") {
    const std::string text = to_json(some_record()).dump();
    for (size_t place = 0; place < text.size(); ++place) {
        std::string other = text;
        other[place] ^= 1;
        CAPTURE(other);
        REQUIRE(why_not(other).starts_with("FILE cannot be restored from: "));
    }
}

TEST_CASE("backup: what is no record is refused") {
    for (const char* text : {"", "{", "[]", "7", "{}", R"({"backup":{}})", R"({"backup":{},"xxh128":7})"})
        REQUIRE(why_not(text) != "");
    nlohmann::json newer = to_json(some_record());
    newer["backup"]["crane_backup"] = kBackupVersion + 1;
    newer["xxh128"] = crane::checkpoint::sum_of(newer["backup"].dump());
    REQUIRE(why_not(newer.dump()).find("use Crane 1.2.3") != std::string::npos);
}
