#include "proxy/tool/backup_record.hpp"

#include <stdexcept>

#include "checkpoint/file_sum.hpp"
#include "proxy/settings_hash.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

constexpr char kVersionKey[] = "crane_backup";

json fields(const BackupRecord& record) {
    return {{kVersionKey, kBackupVersion},
            {"crane", record.crane},
            {"cluster", record.cluster},
            {"index", record.index},
            {"id", record.id},
            {"bytes", record.bytes},
            {"taken_s", record.taken_s},
            {"settings", record.settings},
            {"launched", record.launched},
            {"craned.toml", record.config}};
}

}  // namespace

uint64_t backup_settings(Config config) {
    config.disk_quota = {};
    return settings_hash(config);
}

json to_json(const BackupRecord& record) {
    const json body = fields(record);
    return {{"backup", body}, {"xxh128", checkpoint::sum_of(body.dump())}};
}

BackupRecord backup_record_from(const std::string& text, const std::string& file) {
    const auto refuse = [&file](const std::string& what) -> std::runtime_error {
        return std::runtime_error(file + " cannot be restored from: " + what);
    };
    const json whole = json::parse(text, nullptr, false);
    if (!whole.is_object() || !whole.contains("backup")) throw refuse("it is no backup of Crane");
    try {
        const json& body = whole.at("backup");
        if (whole.at("xxh128") != checkpoint::sum_of(body.dump())) throw refuse("its record is damaged");
        if (const unsigned version = body.at(kVersionKey); version != kBackupVersion)
            throw refuse("its version is " + std::to_string(version) + ", and this Crane knows " +
                         std::to_string(kBackupVersion) + ": use Crane " +
                         body.at("crane").get<std::string>());
        BackupRecord record{body.at("crane"),    body.at("cluster"),  body.at("index"),
                            body.at("id"),       body.at("bytes"),    body.at("taken_s"),
                            body.at("settings"), body.at("launched"), body.at("craned.toml")};
        if (record.index == 0 || !checkpoint::is_sum(record.id)) throw refuse("its record makes no sense");
        return record;
    } catch (const json::exception& error) {
        throw refuse(std::string("its record is not whole: ") + error.what());
    }
}

}  // namespace crane::proxy
