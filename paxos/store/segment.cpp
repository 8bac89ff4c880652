#include "paxos/store/segment.hpp"

#include "base/check.hpp"
#include "paxos/store/record.hpp"

namespace crane::paxos {
namespace {

constexpr size_t kSizeBytes = sizeof(uint32_t);
constexpr size_t kSyncedPlace = 16;
constexpr size_t kMaxKeptBytes = 1u << 20;  // of memory, when a record is done

}  // namespace

void encode_segment(const Segment& segment, std::string& out) {
    out.clear();
    put_int(out, segment.first);
    put_int(out, segment.place.file);
    put_int(out, segment.place.offset);
}

bool decode_segment(uint64_t last, std::string_view bytes, Segment& segment) {
    WireReader in(bytes);
    segment.first = in.get_int<uint64_t>();
    segment.last = last;
    segment.place.file = in.get_int<uint32_t>();
    segment.place.offset = in.get_int<uint32_t>();
    return in.finished() && segment.first > 0 && segment.first <= last;
}

SegmentWriter::SegmentWriter() {
    clear();
}

void SegmentWriter::clear() {
    record_.clear();
    if (record_.capacity() > kMaxKeptBytes) record_.shrink_to_fit();
    put_int(record_, kSegmentRecordType);
    put_int(record_, uint32_t{0});
    put_int(record_, uint64_t{0});
    put_int(record_, uint64_t{0});
    first_ = last_ = 0;
}

void SegmentWriter::set_synced(const LogPlace& place) {
    std::memcpy(record_.data() + kSyncedPlace, &place.file, sizeof place.file);
    std::memcpy(record_.data() + kSyncedPlace + sizeof place.file, &place.offset, sizeof place.offset);
}

void SegmentWriter::add(const Entry& entry) {
    CRANE_CHECK(empty() || entry.index == last_ + 1);
    if (empty()) first_ = entry.index;
    last_ = entry.index;
    put_int(record_, entry.index);
    const size_t place = record_.size();
    put_int(record_, uint32_t{0});
    append_entry(entry, record_);
    const auto size = static_cast<uint32_t>(record_.size() - place - kSizeBytes);
    std::memcpy(record_.data() + place, &size, sizeof size);
}

SegmentReader::SegmentReader(std::string_view record) : in_(record) {
    const uint32_t type = in_.get_int<uint32_t>();
    in_.get_int<uint32_t>();
    in_.get_int<uint64_t>();
    synced_.file = in_.get_int<uint32_t>();
    synced_.offset = in_.get_int<uint32_t>();
    if (!in_.bad() && type == kSegmentRecordType) return;
    in_ = WireReader({});
    synced_ = {};
}

bool SegmentReader::next(uint64_t& index, std::string_view& bytes) {
    if (in_.remaining() == 0) return false;
    index = in_.get_int<uint64_t>();
    bytes = in_.get_bytes(in_.remaining());
    return !in_.bad();
}

}  // namespace crane::paxos
