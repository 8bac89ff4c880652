#include "proxy/output_log_reader.hpp"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace crane::proxy {

using timebubble::OutputKind;
using timebubble::padded;

namespace {

constexpr int kMaxOldFiles = 3;

}  // namespace

OutputLogReader::OutputLogReader(const std::string& path) : path_(path) {
    struct stat info {};
    if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) path_ += "/output.log";
    // The newest first, then the older ones: a file that rotates meanwhile is opened twice rather than
    // missed.
    for (int i = 0; i <= kMaxOldFiles; ++i) {
        const std::string name = i == 0 ? path_ : path_ + "." + std::to_string(i);
        File file(fopen(name.c_str(), "re"));
        if (!file && i == 0) throw std::runtime_error("cannot open " + name + ": " + strerror(errno));
        if (!file) break;
        OutputLogHeader header;
        read_header(file.get(), name, header);
        if (!files_.empty() && header.first_record >= files_.front().second.first_record) continue;
        files_.emplace_front(std::move(file), header);
    }
    first_number_ = files_.front().second.first_record;
    header_ = files_.front().second;
    chain_ = header_.chain;
    admitted_index_ = header_.admitted_index;
    next_number_ = first_number_;
}

void OutputLogReader::read_header(FILE* file, const std::string& name, OutputLogHeader& header) const {
    if (fread(&header, sizeof(header), 1, file) != 1) {
        throw std::runtime_error(name +
                                 " has no header yet: the replica has just started, or its log was cut");
    }
    if (memcmp(header.magic, kOutputLogMagic, sizeof(header.magic)) != 0) {
        throw std::runtime_error(name + " is not an output log");
    }
    if (header.version != kOutputLogVersion) {
        throw std::runtime_error(name + " has format " + std::to_string(header.version) +
                                 "; this program reads " + std::to_string(kOutputLogVersion));
    }
}

bool OutputLogReader::next_file() {
    if (files_.size() < 2) return false;
    const uint64_t first = files_[1].second.first_record;
    if (first > next_number_) {
        throw std::runtime_error(
            path_ + " lacks records " + std::to_string(next_number_) + " to " + std::to_string(first - 1) +
            ", for which there was no room on the disk. Restart its craned: the log is then "
            "made anew by replay");
    }
    files_.pop_front();
    header_ = files_.front().second;
    return true;
}

OutputLogReader::Next OutputLogReader::stay(long begin, Next why) {
    fseek(files_.front().first.get(), begin, SEEK_SET);  // and the end of the file is forgotten
    return why;
}

bool OutputLogReader::look_again() {
    const auto inode = [](FILE* file) {
        struct stat info {};
        fstat(fileno(file), &info);
        return std::pair(info.st_dev, info.st_ino);
    };
    OutputLogReader now(path_);
    const auto newest = inode(files_.back().first.get());
    auto known = std::find_if(now.files_.begin(), now.files_.end(),
                              [&](const auto& file) { return inode(file.first.get()) == newest; });
    if (known == now.files_.end()) return false;
    std::move(++known, now.files_.end(), std::back_inserter(files_));
    return true;
}

bool OutputLogReader::hashed() const {
    return header_.content == static_cast<uint32_t>(LogContent::kHash) &&
           record_.kind == static_cast<uint16_t>(OutputKind::kSend);
}

OutputLogReader::Next OutputLogReader::next() {
    FILE* file = files_.front().first.get();
    const long begin = ftell(file);
    const size_t got = fread(&record_, 1, sizeof(record_), file);
    if (got == 0 && next_file()) return next();
    if (got == 0) return stay(begin, Next::kEnd);
    damaged_ = got == sizeof(record_) && record_.bytes > timebubble::kMaxOutputPayload;
    if (got != sizeof(record_) || damaged_) return stay(begin, Next::kTorn);
    payload_.resize(hashed() ? sizeof(Hash128) : record_.bytes);
    const size_t stored = padded(payload_.size());
    payload_.resize(stored);
    if (stored != 0 && fread(payload_.data(), 1, stored, file) != stored) return stay(begin, Next::kTorn);
    payload_.resize(hashed() ? sizeof(Hash128) : record_.bytes);
    const Hash128 chain = next_chain(chain_, record_, payload_hash());
    damaged_ = !(chain == record_.chain);
    if (damaged_) return stay(begin, Next::kTorn);
    chain_ = chain;
    number_ = next_number_++;
    if (record_.kind == static_cast<uint16_t>(OutputKind::kAdmitted) && payload_.size() >= 8) {
        memcpy(&admitted_index_, payload_.data(), sizeof(admitted_index_));
    }
    return Next::kRecord;
}

Hash128 OutputLogReader::payload_hash() const {
    if (!hashed()) return hash_payload(payload_);
    Hash128 out;
    memcpy(&out, payload_.data(), sizeof(out));
    return out;
}

const char* output_kind_name(uint16_t kind) {
    switch (static_cast<OutputKind>(kind)) {
        case OutputKind::kSend:
            return "send";
        case OutputKind::kShutdown:
            return "shutdown";
        case OutputKind::kClose:
            return "close";
        case OutputKind::kAccept:
            return "accept";
        case OutputKind::kProbes:
            return "probes";
        case OutputKind::kConsumed:
            return "consumed";
        case OutputKind::kListen:
            return "listen";
        case OutputKind::kUnlisten:
            return "unlisten";
        case OutputKind::kAdmitted:
            return "admitted";
        case OutputKind::kExit:
            return "exit";
        case OutputKind::kMessage:
            return "message";
        case OutputKind::kDatagramPort:
            return "datagram port";
        case OutputKind::kDatagramPortEnd:
            return "end of datagram port";
        case OutputKind::kDatagram:
            return "datagram";
        case OutputKind::kConnect:
            return "connect to the outside";
        case OutputKind::kResolve:
            return "name asked for";
    }
    return "unknown";
}

}  // namespace crane::proxy
