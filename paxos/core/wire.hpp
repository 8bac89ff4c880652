// Little-endian integers in byte strings. The reader never passes the end: it turns bad instead, and stays
// so.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace crane::paxos {

static_assert(std::endian::native == std::endian::little,
              "the encodings copy integers as they lie in memory");

template <typename T>
void put_int(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline void put_bytes(std::string& out, std::string_view bytes) {
    put_int(out, static_cast<uint32_t>(bytes.size()));
    out.append(bytes);
}

class WireReader {
  public:
    explicit WireReader(std::string_view bytes) : rest_(bytes) {}

    template <typename T>
    T get_int() {
        T value{};
        if (rest_.size() < sizeof value) {
            bad_ = true;
            return value;
        }
        std::memcpy(&value, rest_.data(), sizeof value);
        rest_.remove_prefix(sizeof value);
        return value;
    }

    std::string_view get_bytes(size_t max_size) {
        const size_t size = get_int<uint32_t>();
        if (bad_ || size > max_size || size > rest_.size()) {
            bad_ = true;
            return {};
        }
        std::string_view bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return bytes;
    }

    bool bad() const { return bad_; }
    size_t remaining() const { return rest_.size(); }
    bool finished() const { return !bad_ && rest_.empty(); }

  private:
    std::string_view rest_;
    bool bad_ = false;
};

}  // namespace crane::paxos
