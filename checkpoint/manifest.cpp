#include "checkpoint/manifest.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "checkpoint/file_sum.hpp"

namespace crane::checkpoint {

using nlohmann::json;

namespace {

constexpr std::string_view kBegin = "{\"manifest\":";
constexpr std::string_view kBeforeSum = ",\"xxh128\":\"";
constexpr std::string_view kEnd = "\"}\n";
constexpr size_t kMaxNameBytes = 64;
constexpr int kMaxDepth = 64;  // of the caller's state: what prints or copies it goes down as deep

/// Empty, or what is beyond its bounds.
std::string problem(const Manifest& manifest) {
    if (manifest.index == 0) return "its index is 0";
    if (manifest.files.size() > kMaxCheckpointFiles) return "it names too many files";
    std::set<std::string_view> names;
    uint64_t total = 0;
    for (const CheckpointFile& file : manifest.files) {
        if (!is_file_name(file.name)) return "it names a file that cannot be part of a checkpoint";
        if (!names.insert(file.name).second) return "it names " + file.name + " twice";
        if (!is_sum(file.xxh128)) return "the sum of " + file.name + " is none";
        if (file.bytes > kMaxCheckpointBytes - total) return file.name + " is too large";
        total += file.bytes;
    }
    return "";
}

bool number(const json& object, const char* key, uint64_t& out) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_unsigned()) return false;
    out = found->get<uint64_t>();
    return true;
}

bool text(const json& object, const char* key, std::string& out) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) return false;
    out = found->get<std::string>();
    return true;
}

std::string read_body(const json& body, Manifest& out) {
    uint64_t version = 0;
    if (!body.is_object() || !number(body, "version", version)) return "it says no version";
    if (version != kManifestVersion)
        return "it has version " + std::to_string(version) + ", and this program reads version " +
               std::to_string(kManifestVersion) + ": use the Crane that has written it";
    if (!number(body, "index", out.index)) return "it says no index";
    const auto files = body.find("files");
    if (files == body.end() || !files->is_array()) return "it lists no files";
    if (files->size() > kMaxCheckpointFiles) return "it names too many files";
    for (const json& one : *files) {
        CheckpointFile file;
        if (!one.is_object() || !text(one, "name", file.name) || !number(one, "bytes", file.bytes) ||
            !text(one, "xxh128", file.xxh128))
            return "a file in it lacks name, size or sum";
        out.files.push_back(std::move(file));
    }
    if (const auto state = body.find("state"); state != body.end()) out.state = *state;
    return problem(out);
}

/// Nothing, and no exception, when it is not JSON or too deep.
json parse(std::string_view body) {
    bool too_deep = false;
    const auto look = [&](int depth, json::parse_event_t, json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
    };
    try {
        json parsed = json::parse(body, look, false);
        return too_deep ? json(json::value_t::discarded) : parsed;
    } catch (const json::exception&) {
        return {json::value_t::discarded};
    }
}

}  // namespace

uint64_t Manifest::bytes() const {
    uint64_t sum = 0;
    for (const CheckpointFile& file : files) sum += file.bytes;
    return sum;
}

bool is_file_name(std::string_view name) {
    const auto fits = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
               c == '_' || c == '-';
    };
    return !name.empty() && name.size() <= kMaxNameBytes && name[0] != '.' && name != kManifestName &&
           std::all_of(name.begin(), name.end(), fits);
}

std::string encode_manifest(const Manifest& manifest) {
    const std::string wrong = problem(manifest);
    if (!wrong.empty()) throw std::runtime_error("the manifest of a checkpoint cannot be: " + wrong);
    json files = json::array();
    for (const CheckpointFile& file : manifest.files)
        files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh128", file.xxh128}});
    std::string body;
    try {
        body = json{{"version", kManifestVersion},
                    {"index", manifest.index},
                    {"files", std::move(files)},
                    {"state", manifest.state}}
                   .dump();
    } catch (const json::exception& error) {
        throw std::runtime_error(std::string("the state of a checkpoint is no text: ") + error.what());
    }
    std::string out = std::string(kBegin) + body + std::string(kBeforeSum) + sum_of(body) + std::string(kEnd);
    const std::string unread = decode_manifest(out).error;
    if (!unread.empty()) throw std::runtime_error("the manifest of a checkpoint cannot be: " + unread);
    return out;
}

DecodedManifest decode_manifest(std::string_view text) {
    DecodedManifest out;
    out.damaged = true;
    const size_t tail = kBeforeSum.size() + kSumDigits + kEnd.size();
    if (text.size() > kMaxManifestBytes) {
        out.error = "it is larger than a manifest can be";
        return out;
    }
    if (text.size() < kBegin.size() + tail || !text.starts_with(kBegin) || !text.ends_with(kEnd) ||
        text.substr(text.size() - tail, kBeforeSum.size()) != kBeforeSum) {
        out.error = "it is no whole manifest";
        return out;
    }
    const std::string_view body = text.substr(kBegin.size(), text.size() - kBegin.size() - tail);
    out.id = text.substr(text.size() - kEnd.size() - kSumDigits, kSumDigits);
    if (sum_of(body) != out.id) {
        out.error = "its sum does not fit its contents";
        return out;
    }
    out.damaged = false;
    const json parsed = parse(body);
    out.error = parsed.is_discarded() ? "it is not JSON" : read_body(parsed, out.manifest);
    return out;
}

}  // namespace crane::checkpoint
