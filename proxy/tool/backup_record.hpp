// What a backup says of itself: the file backup.json in it. Beside it are a checkpoint's manifest and files,
// as they are on a replica's disk; all of it is one tar archive, which any tar takes apart.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proxy/config.hpp"

namespace crane::proxy {

constexpr unsigned kBackupVersion = 1;
constexpr char kRecordName[] = "backup.json";
constexpr size_t kMaxRecordBytes = 1 << 20;

struct BackupRecord {
    std::string crane;        ///< the version of Crane that made it
    std::string cluster;      ///< whose it is
    uint64_t index = 0;       ///< the last log entry that is in it
    std::string id;           ///< of the checkpoint
    uint64_t bytes = 0;       ///< of its files
    uint64_t taken_s = 0;     ///< when the checkpoint came to be, Unix time
    uint64_t settings = 0;    ///< backup_settings() of the server that is in it
    nlohmann::json launched;  ///< how crane-run started the server; null: it did not
    std::string config;       ///< the text of a replica's craned.toml, for people
};

/// What the server runs with, in one number; a quota may be another one where it is restored.
uint64_t backup_settings(Config config);

nlohmann::json to_json(const BackupRecord& record);
/// Throws std::runtime_error with what is wrong; `file` is whose backup.json it is.
BackupRecord backup_record_from(const std::string& text, const std::string& file);

}  // namespace crane::proxy
