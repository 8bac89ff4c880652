#include "timebubble/batch.hpp"

#include <cstring>

#include "timebubble/transport.hpp"

namespace crane::timebubble {

void BatchEncoder::reset() {
    buffer_.assign(sizeof(BatchHeader), '\0');
    calls_ = 0;
}

bool BatchEncoder::add(CallKind kind, uint64_t connection, std::string_view payload) {
    const size_t room = sizeof(CallHeader) + padded(payload.size());
    if (buffer_.size() + room > kMaxBatchBytes) return false;
    CallHeader header{kind, 0, static_cast<uint32_t>(payload.size()), connection};
    buffer_.append(reinterpret_cast<const char*>(&header), sizeof(header));
    buffer_.append(payload);
    buffer_.append(padded(payload.size()) - payload.size(), '\0');
    ++calls_;
    return true;
}

std::string BatchEncoder::finish(uint64_t timestamp_ns, uint64_t grant_clocks) {
    BatchHeader header{kBatchMagic, calls_, timestamp_ns, grant_clocks};
    std::memcpy(buffer_.data(), &header, sizeof(header));
    std::string out = std::move(buffer_);
    reset();
    return out;
}

namespace {

/// Walks all calls once; true if they end exactly where the batch ends.
bool well_formed(const uint8_t* at, const uint8_t* end, uint32_t calls) noexcept {
    for (uint32_t i = 0; i < calls; ++i) {
        if (static_cast<size_t>(end - at) < sizeof(CallHeader)) return false;
        CallHeader call;
        std::memcpy(&call, at, sizeof(call));
        at += sizeof(call);
        if (static_cast<size_t>(end - at) < padded(call.bytes)) return false;
        if (call.kind < CallKind::kGenesis || call.kind > CallKind::kResolved || call.reserved != 0)
            return false;
        for (size_t i = call.bytes; i < padded(call.bytes); ++i)
            if (at[i] != 0) return false;
        at += padded(call.bytes);
    }
    return at == end;
}

}  // namespace

bool BatchDecoder::open(const uint8_t* data, size_t bytes) noexcept {
    if (bytes < sizeof(BatchHeader) || bytes > kMaxBatchBytes) return false;
    std::memcpy(&header_, data, sizeof(header_));
    if (header_.magic != kBatchMagic) return false;
    at_ = data + sizeof(BatchHeader);
    end_ = data + bytes;
    left_ = header_.calls;
    return well_formed(at_, end_, left_);
}

bool BatchDecoder::next(Call& call) noexcept {
    if (left_ == 0) return false;
    --left_;
    CallHeader header;
    std::memcpy(&header, at_, sizeof(header));
    at_ += sizeof(header);
    call.kind = header.kind;
    call.connection = header.connection;
    call.payload = std::string_view(reinterpret_cast<const char*>(at_), header.bytes);
    at_ += padded(header.bytes);
    return true;
}

}  // namespace crane::timebubble
