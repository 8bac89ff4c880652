// Pieces of code of the shim's own beside the program's: room for them where a short jump reaches, and how
// they are written.
//
// Rules:
//  - only code of a file is changed, which nobody makes anew while it runs;
//  - only under `serial`, where no other thread is in the midst of the code that changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace crane::interpose {

constexpr size_t kStubBytes = 128, kStubJumpBytes = 5;

struct Mapping {
    uint64_t begin = 0, end = 0;
    uint64_t inode = 0;  ///< 0: no code of a file
};

/// The code of a file that `at` is in. A page that was changed is a mapping of its own from then on: what
/// lies side by side is one.
bool find_code(uint64_t at, Mapping& found);

/// Room for a stub that a jump from `code` reaches; 0: none. Below it, where no heap grows.
uint64_t room_for_stub(const Mapping& code);

/// Whether anybody in `code`, or in a stub, jumps to a place in first..last (x86_code.hpp). All of it is
/// looked at: what is rarely done stands far from the function that it belongs to.
bool is_jumped_into(const Mapping& code, uint64_t first, uint64_t last);

/// For code at begin..begin+bytes, all pages of it.
bool open_code(uint64_t begin, size_t bytes);
void close_code(uint64_t begin, size_t bytes);

class CodeWriter {
  public:
    explicit CodeWriter(uint64_t to) : to_(reinterpret_cast<uint8_t*>(to)) {}
    void put(const void* bytes, size_t size) {
        memcpy(to_ + size_, bytes, size);
        size_ += size;
    }
    template <size_t N>
    void put(const uint8_t (&bytes)[N]) {
        put(bytes, N);
    }
    void put_jump(uint64_t target) {
        constexpr uint8_t kOpcode[] = {0xe9};
        const uint64_t behind = reinterpret_cast<uint64_t>(to_) + size_ + kStubJumpBytes;
        const auto distance = static_cast<int32_t>(target - behind);
        put(kOpcode);
        put(&distance, sizeof(distance));
    }
    void fill(size_t up_to) {
        constexpr uint8_t kNop[] = {0x90};
        while (size_ < up_to) put(kNop);
    }
    size_t size() const { return size_; }

  private:
    uint8_t* to_;
    size_t size_ = 0;
};

}  // namespace crane::interpose
