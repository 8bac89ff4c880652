#include "checkpoint/criu_message.hpp"

#include <cstring>

namespace crane::checkpoint {
namespace {

constexpr uint64_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;  // protobuf's wire types
constexpr uint64_t kDump = 1, kRestore = 2, kNotify = 6;                 // criu_req_type
constexpr uint64_t kIgnoreCgroups = 0, kNoNetworkLock = 3;
constexpr uint64_t kErrorsAndWarnings = 2;  // log level
constexpr uint64_t kGhostLimitBytes = 64 << 20;
constexpr uint64_t kFreezeTimeoutS = 10;

void put_varint(std::string* out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) *out += static_cast<char>(value | 0x80);
    *out += static_cast<char>(value);
}

void put(std::string* out, uint64_t field, uint64_t value) {
    put_varint(out, field << 3 | kVarint);
    put_varint(out, value);
}

void put(std::string* out, uint64_t field, const std::string& bytes) {
    put_varint(out, field << 3 | kBytes);
    put_varint(out, bytes.size());
    *out += bytes;
}

// Goes through the fields of one message; false from next() at its end or where it is not one.
class Reader {
  public:
    explicit Reader(const std::string& bytes) : bytes_(bytes) {}
    uint64_t field = 0, value = 0;
    std::string text;

    bool next() {
        uint64_t key = 0;
        if (at_ == bytes_.size()) return false;
        if (!varint(&key)) return broken();
        field = key >> 3;
        value = 0;
        text.clear();
        switch (key & 7) {
            case kVarint:
                return varint(&value) || broken();
            case kFixed64:
                return take(8) || broken();
            case kFixed32:
                return take(4) || broken();
            case kBytes:
                return (varint(&value) && take(value)) || broken();
            default:
                return broken();
        }
    }
    bool sound() const { return sound_; }

  private:
    bool varint(uint64_t* result) {
        *result = 0;
        for (unsigned shift = 0; at_ < bytes_.size() && shift < 64; shift += 7) {
            const auto byte = static_cast<uint8_t>(bytes_[at_++]);
            *result |= uint64_t{byte & 0x7fU} << shift;
            if (byte < 0x80) return true;
        }
        return false;
    }
    bool take(uint64_t size) {
        if (size > bytes_.size() - at_) return false;
        text = bytes_.substr(at_, size);
        at_ += size;
        return true;
    }
    bool broken() {
        sound_ = false;
        return false;
    }
    const std::string& bytes_;
    size_t at_ = 0;
    bool sound_ = true;
};

}  // namespace

std::string encode(const CriuRequest& request) {
    std::string options;
    put(&options, 1, static_cast<uint64_t>(request.images_fd));
    if (!request.restore) put(&options, 2, static_cast<uint64_t>(request.root_pid));
    if (!request.restore) put(&options, 3, 1);  // leave_running
    put(&options, 5, 1);                        // tcp_established
    put(&options, 8, 1);                        // file_locks
    put(&options, 9, kErrorsAndWarnings);
    put(&options, 10, request.log_file);
    put(&options, 12, 1);  // notify_scripts
    put(&options, 18, 1);  // link_remap
    put(&options, 21, 1);  // force_irmap
    for (const CriuRequest::Replacement& one : request.replacements) {
        std::string replacement;
        put(&replacement, 1, one.key);
        put(&replacement, 2, static_cast<uint64_t>(one.fd));
        put(&options, 27, replacement);
    }
    put(&options, 34, kIgnoreCgroups);
    put(&options, 35, kGhostLimitBytes);
    for (const std::string& path : request.watched) put(&options, 36, path);  // irmap_scan_paths
    put(&options, 45, kFreezeTimeoutS);
    put(&options, 46, 1);  // tcp_skip_in_flight
    put(&options, 64, kNoNetworkLock);
    std::string message;
    put(&message, 1, request.restore ? kRestore : kDump);
    put(&message, 2, options);
    return message;
}

std::string encode_criu_go_on(bool success) {
    std::string message;
    put(&message, 1, kNotify);
    put(&message, 3, success ? 1 : 0);
    return message;
}

std::optional<CriuAnswer> decode_criu_answer(const std::string& bytes) {
    CriuAnswer answer;
    Reader outer(bytes);
    while (outer.next()) {
        if (outer.field == 2) answer.success = outer.value != 0;
        if (outer.field == 9) answer.error = outer.text;
        if (outer.field != 4 && outer.field != 5) continue;
        const std::string part = outer.text;
        Reader inner(part);
        while (inner.next()) {
            if (inner.field != 1) continue;
            if (outer.field == 4) answer.restored_pid = static_cast<int>(inner.value);
            if (outer.field == 5) answer.stage = inner.text;
        }
        if (!inner.sound()) return std::nullopt;
    }
    return outer.sound() ? std::optional(answer) : std::nullopt;
}

std::optional<uint64_t> frozen_us(const std::string& stats_image) {
    constexpr size_t kMagicsAndSize = 12;
    if (stats_image.size() < kMagicsAndSize) return std::nullopt;
    const std::string entry = stats_image.substr(kMagicsAndSize);
    Reader outer(entry);
    if (!outer.next() || outer.field != 1) return std::nullopt;
    const std::string dump = outer.text;
    Reader inner(dump);
    uint64_t sum_us = 0;
    while (inner.next())
        if (inner.field == 1 || inner.field == 2) sum_us += inner.value;  // freezing, frozen
    return inner.sound() ? std::optional(sum_us) : std::nullopt;
}

}  // namespace crane::checkpoint
