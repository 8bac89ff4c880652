#include "paxos/log_scan.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "paxos/segment.hpp"

namespace crane::paxos {
namespace {

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

bool parse_log_name(const std::string& name, uint32_t& number) {
    constexpr std::string_view prefix = "log.";
    if (name.size() != prefix.size() + 10 || !name.starts_with(prefix)) return false;
    const char* end = name.data() + name.size();
    return std::from_chars(name.data() + prefix.size(), end, number).ptr == end;
}

}  // namespace

bool LogScan::damaged() const {
    return file != 0 && end != 0 && (synced.file > file || (synced.file == file && synced.offset > end));
}

LogScan scan_log(uint32_t file, std::string_view bytes) {
    LogScan scan;
    scan.file = file;
    const size_t last = bytes.find_last_not_of('\0');
    scan.bytes = last == std::string_view::npos ? 0 : last + 1;
    bool whole = true;
    for (size_t offset = 0;;) {
        Header header;
        if (bytes.size() - offset < sizeof header) break;
        std::memcpy(&header, bytes.data() + offset, sizeof header);
        if (header.size <= sizeof header || header.size > bytes.size() - offset) break;
        const std::string_view content = bytes.substr(offset + sizeof header, header.size - sizeof header);
        const bool holds = checksum(header, content) == header.checksum;
        whole = whole && holds;
        offset += header.size;
        if (whole) scan.end = offset;
        const LogPlace synced = holds ? SegmentReader(content).synced() : LogPlace{};
        if (scan.synced < synced) scan.synced = synced;
    }
    return scan;
}

LogScan scan_newest_log(FileSystem& files, const std::string& directory) {
    uint32_t newest = 0;
    std::string name, bytes;
    for (const std::string& found : files.list(directory)) {
        uint32_t number = 0;
        if (!parse_log_name(found, number) || number <= newest) continue;
        newest = number;
        name = found;
    }
    if (newest == 0 || files.read(directory + "/" + name, bytes) != 0) return {};
    return scan_log(newest, bytes);
}

}  // namespace crane::paxos
