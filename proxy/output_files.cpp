#include "proxy/output_files.hpp"

#include <errno.h>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

namespace crane::proxy {

namespace {

constexpr int kOldFiles = 3;
constexpr char kNew[] = ".new";

}  // namespace

OutputFiles::OutputFiles(const std::string& path, const OutputLogHeader& identity, uint64_t file_limit,
                         const OutputPosition& from, const std::atomic<bool>& abandoned)
    : path_(path), identity_(identity), file_limit_(file_limit), abandoned_(abandoned), at_(from) {
    std::error_code ignored;
    std::filesystem::remove(path_ + kNew, ignored);  // one that was abandoned may still write to it
    begin_file(at_, Before::kPrevious);
    write_out();  // a file without a header is no log, however short the run
}

OutputFiles::~OutputFiles() {
    if (fd_ >= 0) close(fd_);
}

void OutputFiles::failed(const std::string& what) {
    const std::string now =
        "OUTPUT LOG: " + what + " " + path_ + ": " + strerror(errno) +
        "; it is tried again, records wait in memory: free space, or lower [output_log] max_bytes";
    if (now != error_) spdlog::error("{}", now);
    error_ = now;
}

/// It follows the file that is open, if one is. False: none is now.
bool OutputFiles::begin_file(const OutputPosition& from, Before before) {
    if (abandoned_) return false;
    // One that never came to its place is written over, and what it was to follow is followed still.
    if (placed_) before_ = before;
    if (fd_ >= 0) close(fd_);
    placed_ = false;
    fd_ = open((path_ + kNew).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd_ < 0) {
        failed("cannot create");
        return false;
    }
    if (from.records != at_.records) {
        spdlog::error(
            "{} lacks records {} to {}: there was no room for them; crane diff will say so. Restart craned "
            "to "
            "have the log made anew by replay",
            path_, at_.records, from.records - 1);
    }
    at_ = from;
    OutputLogHeader header = identity_;
    header.first_record = from.records;
    header.admitted_index = from.admitted_index;
    header.chain = from.chain;
    file_bytes_ = sizeof(header);
    header_.assign(reinterpret_cast<const char*>(&header), sizeof(header));
    current_ = {};
    written_ = 0;
    return true;
}

/// By a further name: it goes from its own only when the next takes that.
void OutputFiles::keep_the_one_before() {
    const auto name = [this](int i) { return i == 0 ? path_ : path_ + "." + std::to_string(i); };
    std::error_code ignored;
    std::string kept = path_ + ".previous";
    if (before_ == Before::kShifted) {
        for (int i = kOldFiles; i >= 2; --i) std::filesystem::rename(name(i - 1), name(i), ignored);
        kept = name(1);
    }
    std::filesystem::remove(kept, ignored);
    std::error_code unlinkable;
    std::filesystem::create_hard_link(path_, kept, unlinkable);
    if (unlinkable) std::filesystem::rename(path_, kept, ignored);  // some file systems have no links
    if (before_ != Before::kPrevious) return;
    for (int i = 1; i <= kOldFiles; ++i) std::filesystem::remove(name(i), ignored);
}

bool OutputFiles::put_in_place() {
    if (abandoned_) return false;
    if (before_ != Before::kNone) keep_the_one_before();
    before_ = Before::kNone;
    placed_ = rename((path_ + kNew).c_str(), path_.c_str()) == 0;
    if (!placed_) failed("cannot put in place");
    return placed_;
}

/// True: nothing of the open file is left to be written.
bool OutputFiles::write_out() {
    while (fd_ >= 0 && left() > 0) {
        const bool in_header = written_ < header_.size();
        if (!in_header && !placed_ && !put_in_place()) return false;
        const std::string& text = in_header ? header_ : current_.bytes;
        const size_t at = in_header ? written_ : written_ - header_.size();
        const ssize_t wrote = ::write(fd_, text.data() + at, text.size() - at);
        if (wrote > 0) {
            written_ += static_cast<size_t>(wrote);
        } else if (wrote == 0 || errno != EINTR) {
            failed("cannot write");
            break;
        }
    }
    return left() == 0 && (fd_ < 0 || placed_ || put_in_place());
}

bool OutputFiles::retry() {
    for (;;) {
        if (!write_out()) return false;
        if (waiting_.empty()) break;
        OutputChunk& next = waiting_.front();
        const bool full =
            file_bytes_ > sizeof(OutputLogHeader) && file_bytes_ + next.bytes.size() > file_limit_;
        const bool begin = fd_ < 0 || full || next.from.records != at_.records;
        if (begin && !begin_file(next.from, Before::kShifted)) return false;
        if (!begin) header_.clear();
        written_ = 0;
        file_bytes_ += next.bytes.size();
        at_ = next.to;
        current_ = std::move(next);
        waiting_.pop_front();
    }
    if (fd_ >= 0 && !error_.empty()) {
        spdlog::warn("{} is written again", path_);
        error_.clear();
    }
    return fd_ >= 0;
}

std::string OutputFiles::write(OutputChunk chunk) {
    if (fd_ >= 0 && placed_ && !in_place()) {
        spdlog::warn("{} was moved or removed: a new one begins with record {}", path_, at_.records);
        reopen();
    }
    waiting_.push_back(std::move(chunk));
    retry();
    std::string spare;
    if (left() != 0) return spare;
    spare.swap(current_.bytes);
    header_.clear();
    written_ = 0;
    return spare;
}

bool OutputFiles::in_place() const {
    struct stat ours {
    }, there{};
    return fstat(fd_, &ours) == 0 && stat(path_.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

void OutputFiles::reopen() {
    const bool written = retry();
    if (fd_ < 0) return;  // it is tried again, at that place
    if (!placed_ || in_place()) return;
    // What the moved file has in part goes into the new one as a whole: a torn end is seen, a gap is not
    // made.
    close(std::exchange(fd_, -1));
    if (!written && !current_.bytes.empty()) {
        at_ = current_.from;
        waiting_.push_front(std::exchange(current_, {}));
    }
    header_.clear();
    written_ = 0;
    if (!begin_file(at_, Before::kNone)) return;
    retry();
}

size_t OutputFiles::bytes() const {
    size_t bytes = left();
    for (const OutputChunk& chunk : waiting_) bytes += chunk.bytes.size();
    return bytes;
}

}  // namespace crane::proxy
