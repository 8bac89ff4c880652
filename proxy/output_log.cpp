#include "proxy/output_log.hpp"

#include <errno.h>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <filesystem>

namespace crane::proxy {

using timebubble::OutputKind;

namespace {

constexpr size_t kFlushBytes = 256 * 1024;
constexpr int kOldFiles = 3;
constexpr size_t kMaxBufferBytes = 16 * 1024 * 1024;

Hash128 from_xxh(XXH128_hash_t hash) {
    return {hash.low64, hash.high64};
}

}  // namespace

std::string Hash128::hex() const {
    char text[33];
    snprintf(text, sizeof(text), "%016lx%016lx", high, low);
    return text;
}

Hash128 hash_payload(std::string_view payload) {
    return from_xxh(XXH3_128bits(payload.data(), payload.size()));
}

Hash128 next_chain(const Hash128& previous, const OutputLogRecord& record, const Hash128& payload) {
    if (!in_chain(record.kind)) return previous;
    struct {
        Hash128 previous;
        uint64_t kind_and_flags;
        uint64_t connection;
        uint64_t bytes;
        Hash128 payload;
    } input{previous, static_cast<uint64_t>(record.kind) << 16 | record.flags, record.connection,
            record.bytes, payload};
    return from_xxh(XXH3_128bits(&input, sizeof(input)));
}

OutputLog::OutputLog(const std::string& state_dir, const Config& config, const OutputPosition& from)
    : path_(state_dir + "/output.log"),
      replica_(config.replica_id),
      cluster_id_(config.cluster_id),
      content_(config.log_content),
      file_limit_(config.log_max_bytes / (kOldFiles + 1)),
      chain_(from.chain),
      records_(from.records),
      admitted_index_(from.admitted_index) {
    std::error_code ignored;
    if (std::filesystem::exists(path_, ignored)) {
        std::filesystem::rename(path_, path_ + ".previous", ignored);
    }
    for (int i = 1; i <= kOldFiles; ++i) std::filesystem::remove(path_ + "." + std::to_string(i), ignored);
    open_file();
}

OutputLog::~OutputLog() {
    write_out();
    if (fd_ >= 0) close(fd_);
}

void OutputLog::failed(const std::string& what) {
    const std::string now =
        "OUTPUT LOG: " + what + " " + path_ + ": " + strerror(errno) +
        "; it is tried again, records wait in memory: free space, or lower [output_log] max_bytes";
    if (now != error_) spdlog::error("{}", now);
    error_ = now;
}

void OutputLog::recovered() {
    if (!error_.empty()) spdlog::warn("{} is written again", path_);
    error_.clear();
}

void OutputLog::open_file() {
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd_ < 0) {
        failed("cannot create");
        losing_ = true;
        lost_from_ = records_;
        return;
    }
    OutputLogHeader header{};
    memcpy(header.magic, kOutputLogMagic, sizeof(header.magic));
    header.version = kOutputLogVersion;
    header.replica = replica_;
    strncpy(header.cluster_id, cluster_id_.c_str(), sizeof(header.cluster_id) - 1);
    header.content = static_cast<uint32_t>(content_);
    header.first_record = records_;
    header.admitted_index = admitted_index_;
    header.chain = chain_;
    file_bytes_ = sizeof(header);
    buffer_.insert(0, reinterpret_cast<const char*>(&header), sizeof(header));
    write_out();  // a file without a header is no log, however short the run
}

/// output.log becomes .1, and so on; the oldest goes.
void OutputLog::shift_files() {
    for (int i = kOldFiles; i >= 1; --i) {
        const std::string from = i == 1 ? path_ : path_ + "." + std::to_string(i - 1);
        std::error_code ignored;
        std::filesystem::rename(from, path_ + "." + std::to_string(i), ignored);
    }
}

void OutputLog::rotate() {
    write_out();
    // What waits belongs into the old file; it goes on there until it can be written.
    if (fd_ < 0 || !buffer_.empty()) return;
    close(fd_);
    fd_ = -1;
    shift_files();
    open_file();
}

void OutputLog::reopen() {
    write_out();
    struct stat ours {
    }, there{};
    const bool same = fd_ >= 0 && fstat(fd_, &ours) == 0 && stat(path_.c_str(), &there) == 0 &&
                      ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
    if (same || !buffer_.empty()) return;
    if (fd_ >= 0) close(fd_);
    open_file();
}

void OutputLog::append(const timebubble::OutputHeader& header, std::string_view payload) {
    if (header.kind == OutputKind::kConsumed || header.kind == OutputKind::kMessage ||
        header.kind == OutputKind::kProbes)
        return;
    OutputLogRecord record{header.bytes,
                           static_cast<uint16_t>(header.kind),
                           header.flags,
                           header.connection,
                           header.clock,
                           header.schedule_hash,
                           {}};
    const Hash128 payload_hash = hash_payload(payload);
    chain_ = next_chain(chain_, record, payload_hash);
    record.chain = chain_;
    ++records_;
    if (header.kind == OutputKind::kSend) bytes_ += payload.size();
    if (header.kind == OutputKind::kAdmitted && payload.size() >= sizeof(timebubble::AdmittedRecord)) {
        memcpy(&admitted_index_, payload.data(), sizeof(admitted_index_));
    }
    if (!losing_ && buffer_.size() > kMaxBufferBytes) {
        losing_ = true;
        lost_from_ = records_ - 1;
        failed("records are lost that do not fit into memory, since nothing can be written to");
    }
    if (losing_) return;
    const size_t before = buffer_.size();
    buffer_.append(reinterpret_cast<const char*>(&record), sizeof(record));
    if (content_ == LogContent::kHash && header.kind == OutputKind::kSend) {
        buffer_.append(reinterpret_cast<const char*>(&payload_hash), sizeof(payload_hash));
    } else {
        buffer_.append(payload);
        buffer_.append(timebubble::padded(payload.size()) - payload.size(), '\0');
    }
    file_bytes_ += buffer_.size() - before;
    if (!error_.empty()) return;  // flush() is called now and then, and tries again
    if (file_bytes_ > file_limit_) {
        rotate();
    } else if (buffer_.size() >= kFlushBytes) {
        flush();
    }
}

void OutputLog::flush() {
    write_out();
    if (!losing_ || !buffer_.empty()) return;
    // All that was kept is written: what comes now begins a file, behind the gap.
    if (fd_ >= 0) {
        close(fd_);
        fd_ = -1;
        shift_files();
    }
    const uint64_t lost_from = lost_from_;
    losing_ = false;
    open_file();
    lost_from_ = lost_from;
    if (losing_ || lost_from == records_) return;
    spdlog::error(
        "{} lacks records {} to {}: there was no room for them; crane diff will say so. Restart craned to "
        "have the log made anew by replay",
        path_, lost_from, records_ - 1);
}

void OutputLog::write_out() {
    size_t done = 0;
    while (fd_ >= 0 && done < buffer_.size()) {
        const ssize_t wrote = write(fd_, buffer_.data() + done, buffer_.size() - done);
        if (wrote > 0) {
            done += static_cast<size_t>(wrote);
        } else if (wrote == 0 || errno != EINTR) {
            failed("cannot write");
            break;
        }
    }
    buffer_.erase(0, done);
    if (fd_ >= 0 && buffer_.empty() && !losing_) recovered();
}

}  // namespace crane::proxy
