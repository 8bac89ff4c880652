// Bytes of a stream that wait, named by their offset in it. Appending and letting go cost no more than a copy
// of each byte, however much waits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace crane::proxy {

class ByteQueue {
  public:
    void append(std::string_view bytes) { bytes_.append(bytes); }
    /// The first byte held, and the one after the last.
    uint64_t begin() const { return begin_; }
    uint64_t end() const { return begin_ + bytes_.size() - at_; }
    /// Bytes [from, to), which must be held.
    std::string_view range(uint64_t from, uint64_t to) const {
        return std::string_view(bytes_).substr(at_ + (from - begin_), to - from);
    }
    /// Lets go of everything before `offset`.
    void drop_before(uint64_t offset) {
        at_ += offset - begin_;
        begin_ = offset;
        if (at_ == bytes_.size()) {
            bytes_.clear();
            if (bytes_.capacity() > kKeptBytes) bytes_.shrink_to_fit();
            at_ = 0;
        } else if (at_ > bytes_.size() / 2) {  // each byte is moved once at most for each that is dropped
            bytes_.erase(0, at_);
            at_ = 0;
        }
    }

  private:
    static constexpr size_t kKeptBytes = 4096;
    std::string bytes_;
    size_t at_ = 0;
    uint64_t begin_ = 0;
};

}  // namespace crane::proxy
