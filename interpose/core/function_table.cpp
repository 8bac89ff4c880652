#include "interpose/core/function_table.hpp"

#include <cstring>

namespace crane::interpose {

namespace {

constexpr uint8_t kRelativeToPlace4 = 0x1b, kUnsigned4 = 0x03, kRelativeToHeader4 = 0x3b;
constexpr size_t kRowBytes = 8;

template <typename T>
T read(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof(value));
    return value;
}

uint64_t read_leb(const uint8_t*& at) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        const uint8_t byte = *at++;
        if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
}

/// Bytes of a value in an encoding (DW_EH_PE_…); 0: of no fixed size.
size_t encoded_bytes(uint8_t encoding) {
    switch (encoding & 0x0f) {
        case 0x00:
        case 0x04:
        case 0x0c:
            return 8;
        case 0x02:
        case 0x0a:
            return 2;
        case 0x03:
        case 0x0b:
            return 4;
        default:
            return 0;
    }
}

/// How the entries of a CIE give addresses; 0xff: not known.
uint8_t address_encoding(const uint8_t* cie) {
    constexpr uint8_t kUnknown = 0xff;
    const uint8_t version = cie[8];
    if (version != 1 && version != 3) return kUnknown;
    const char* letters = reinterpret_cast<const char*>(cie + 9);
    const uint8_t* at = cie + 9 + strlen(letters) + 1;
    read_leb(at);  // code alignment
    read_leb(at);  // data alignment
    if (version == 1)
        ++at;
    else
        read_leb(at);
    if (*letters++ != 'z') return 0;
    read_leb(at);
    for (; *letters; ++letters) {
        switch (*letters) {
            case 'R':
                return *at;
            case 'P': {
                const size_t bytes = encoded_bytes(*at);
                if (bytes == 0) return kUnknown;
                at += 1 + bytes;
                break;
            }
            case 'L':
                ++at;
                break;
            case 'S':
            case 'B':
                break;
            default:
                return kUnknown;
        }
    }
    return 0;
}

/// Length of what an FDE describes; 0: not known.
uint64_t described_bytes(const uint8_t* fde) {
    const auto length = read<uint32_t>(fde);
    if (length == 0 || length == 0xffff'ffff) return 0;
    const uint8_t* const cie = fde + 4 - read<uint32_t>(fde + 4);
    const size_t bytes = encoded_bytes(address_encoding(cie));
    const uint8_t* const range = fde + 8 + bytes;
    if (bytes == 4) return read<uint32_t>(range);
    return bytes == 8 ? read<uint64_t>(range) : 0;
}

}  // namespace

FunctionTable::FunctionTable(const uint8_t* header) : header_(header) {
    constexpr size_t kHeadBytes = 12;
    if (header[0] != 1 || header[1] != kRelativeToPlace4 || header[2] != kUnsigned4 ||
        header[3] != kRelativeToHeader4)
        return;
    count_ = read<uint32_t>(header + 8);
    rows_ = header + kHeadBytes;
}

uint64_t FunctionTable::begin_of(size_t index) const {
    return reinterpret_cast<uint64_t>(header_) +
           static_cast<uint64_t>(int64_t{read<int32_t>(rows_ + index * kRowBytes)});
}

uint64_t FunctionTable::end_of(size_t index) const {
    const uint64_t bytes = described_bytes(header_ + read<int32_t>(rows_ + index * kRowBytes + 4));
    return bytes == 0 ? 0 : begin_of(index) + bytes;
}

bool FunctionTable::find(uint64_t at, CodeRange whole, CodeRange& found) const {
    size_t low = 0, high = count_;  // the first that begins behind `at`
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (begin_of(middle) <= at)
            low = middle + 1;
        else
            high = middle;
    }
    const uint64_t next = low < count_ && begin_of(low) < whole.end ? begin_of(low) : whole.end;
    if (low == 0 || begin_of(low - 1) < whole.begin) return false;
    const uint64_t end = end_of(low - 1);
    if (end == 0) return false;
    found = at < end ? CodeRange{begin_of(low - 1), end} : CodeRange{end, next};
    return true;
}

}  // namespace crane::interpose
