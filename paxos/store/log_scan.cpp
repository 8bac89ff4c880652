#include "paxos/store/log_scan.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <functional>
#include <map>

#include "paxos/store/segment.hpp"

namespace crane::paxos {
namespace {

constexpr uint32_t kCheckpointType = 11;  // Berkeley DB's type of a checkpoint
// To find a segment in a file: values may look like many, and may have been made to.
constexpr int kMaxTries = 1000;
constexpr size_t kMaxTriedBytes = 256u << 20;

// What comes before each record in the file: the place of the one before, this one's size with this header,
// and a checksum.
struct Header {
    uint32_t previous = 0;
    uint32_t size = 0;
    uint32_t checksum = 0;
};

// Berkeley DB's own checksum, __db_chksum().
uint32_t checksum(const Header& header, std::string_view content) {
    uint32_t sum = 0;
    for (const char byte : content) sum = sum * 33 + static_cast<uint8_t>(byte);
    return sum ^ header.previous ^ header.size;
}

// What the record that begins here holds; empty: there is none.
std::string_view record_at(std::string_view bytes, size_t offset) {
    Header header;
    if (bytes.size() - offset < sizeof header) return {};
    std::memcpy(&header, bytes.data() + offset, sizeof header);
    if (header.size <= sizeof header || header.size > bytes.size() - offset) return {};
    const std::string_view content = bytes.substr(offset + sizeof header, header.size - sizeof header);
    return checksum(header, content) == header.checksum ? content : std::string_view{};
}

// A record that holds, and all before it do.
void take(size_t offset, std::string_view bytes, std::string_view content, LogScan& scan) {
    constexpr size_t kRedoPlace = 16;  // behind the record's type, its transaction and the one before
    if (offset == 0) std::memcpy(&scan.previous, bytes.data(), sizeof(Header::previous));
    scan.last = offset;
    scan.end = offset + sizeof(Header) + content.size();
    uint32_t type = 0;
    if (content.size() < kRedoPlace + sizeof(LogPlace)) return;
    std::memcpy(&type, content.data(), sizeof type);
    if (type == kCheckpointType) std::memcpy(&scan.redo, content.data() + kRedoPlace, sizeof scan.redo);
}

// Finds segments behind a record that does not hold. What looks like one there may be part of a value, in
// which a client may have put anything: a true one tells of what was on disk before it, and the record before
// it begins no earlier than the one that does not hold.
class SegmentSearch {
  public:
    SegmentSearch(uint32_t file, std::string_view bytes) : file_(file), bytes_(bytes) {}

    // Where the first one behind the record at `broken` begins; npos: nowhere, as far as was looked.
    size_t find(size_t broken) {
        std::array<char, sizeof kSegmentRecordType> type;
        std::memcpy(type.data(), &kSegmentRecordType, sizeof kSegmentRecordType);
        size_t found = broken + sizeof(Header);
        while (tries_ < kMaxTries && tried_bytes_ < kMaxTriedBytes) {
            found = bytes_.find({type.data(), type.size()}, found + 1);
            if (found == std::string_view::npos) break;
            if (holds(found - sizeof(Header), broken)) return found - sizeof(Header);
        }
        return std::string_view::npos;
    }

  private:
    bool holds(size_t begin, size_t broken) {
        Header header;
        std::memcpy(&header, bytes_.data() + begin, sizeof header);
        if (header.previous < broken || header.previous >= begin) return false;
        ++tries_;
        tried_bytes_ += std::min<size_t>(header.size, bytes_.size() - begin);
        const LogPlace synced = SegmentReader(record_at(bytes_, begin)).synced();
        const LogPlace here{file_, static_cast<uint32_t>(begin)};
        return synced != LogPlace{} && !(here < synced);
    }

    const uint32_t file_;
    const std::string_view bytes_;
    int tries_ = 0;
    size_t tried_bytes_ = 0;
};

bool parse_log_name(const std::string& name, uint32_t& number) {
    constexpr std::string_view kPrefix = "log.";
    if (name.size() != kPrefix.size() + 10 || !name.starts_with(kPrefix)) return false;
    const char* end = name.data() + name.size();
    return std::from_chars(name.data() + kPrefix.size(), end, number).ptr == end;
}

}  // namespace

bool LogScan::damaged() const {
    return file != 0 && (synced.file > file || (synced.file == file && synced.offset > end));
}

LogScan scan_log(uint32_t file, std::string_view bytes) {
    LogScan scan;
    scan.file = file;
    const size_t last = bytes.find_last_not_of('\0');
    scan.bytes = last == std::string_view::npos ? 0 : last + 1;
    bool whole = true;
    SegmentSearch search(file, bytes);
    for (size_t offset = 0; offset < scan.bytes;) {
        const std::string_view content = record_at(bytes, offset);
        if (content.empty()) {  // it does not hold, and where it ends is not known either
            whole = false;
            offset = search.find(offset);
            continue;
        }
        if (whole) take(offset, bytes, content, scan);
        offset += sizeof(Header) + content.size();
        scan.synced = std::max(scan.synced, SegmentReader(content).synced());
    }
    return scan;
}

LogScans scan_logs(FileSystem& files, const std::string& directory) {
    LogScans logs;
    std::vector<std::string> found;
    const auto failed = [&logs](const std::string& path, int error) {
        if (error == 0) return false;
        logs.error = error;
        logs.unreadable = path;
        return true;
    };
    if (failed(directory, files.list(directory, found))) return logs;
    std::map<uint32_t, std::string, std::greater<>> names;
    for (const std::string& name : found)
        if (uint32_t number = 0; parse_log_name(name, number)) names[number] = directory + "/" + name;
    std::string bytes;
    LogPlace redo;
    for (const auto& [number, path] : names) {
        if (failed(path, files.read(path, bytes))) return logs;
        logs.newest.push_back(scan_log(number, bytes));
        if (redo.file == 0) redo = logs.newest.back().redo;
        if (redo.file != 0 && number <= redo.file) break;
    }
    if (names.empty()) return logs;
    const auto& [number, path] = *names.rbegin();
    if (!failed(path, files.read(path, bytes))) logs.oldest = scan_log(number, bytes);
    return logs;
}

std::optional<LogPlace> find_damage(const LogScans& scans) {
    const std::vector<LogScan>& logs = scans.newest;
    const auto place = [](const LogScan& log) { return LogPlace{log.file, static_cast<uint32_t>(log.end)}; };
    LogPlace redo;
    for (size_t i = 0; i < logs.size(); ++i) {
        const LogScan& log = logs[i];
        if (log.damaged()) return place(log);
        if (redo.file == 0) redo = log.redo;
        if (i == 0) continue;
        const LogScan& next = logs[i - 1];
        if (next.file != log.file + 1) return LogPlace{log.file + 1, 0};
        // More than that may have come back of what recovery once cut: it is cut again.
        if (next.previous > log.last) return place(log);
    }
    if (!logs.empty() && scans.oldest.file < logs.front().file && scans.oldest.end == 0)
        return place(scans.oldest);
    const uint32_t first = redo.file != 0 ? redo.file : 1;
    if (!logs.empty() && logs.back().file > first) return LogPlace{logs.back().file - 1, 0};
    return std::nullopt;
}

}  // namespace crane::paxos
