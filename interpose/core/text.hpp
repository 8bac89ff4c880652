// Text written to a file in memory piece by piece: no allocation, no stdio.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>

#include "interpose/core/raw.hpp"

namespace crane::interpose {

class Text {
  public:
    explicit Text(int fd) : fd_(fd) {}
    ~Text() { flush(); }
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;

    Text& operator<<(const char* text) {
        for (; *text; ++text) put(*text);
        return *this;
    }
    Text& operator<<(std::string_view text) {
        for (const char c : text) put(c);
        return *this;
    }
    Text& operator<<(uint64_t number) {
        char digits[24];
        const auto end = std::to_chars(digits, digits + sizeof(digits), number);
        for (const char* at = digits; at != end.ptr; ++at) put(*at);
        return *this;
    }

  private:
    void put(char c) {
        if (used_ == sizeof(bytes_)) flush();
        bytes_[used_++] = c;
    }
    void flush() {
        raw(SYS_write, fd_, bytes_, used_);
        used_ = 0;
    }

    int fd_;
    size_t used_ = 0;
    char bytes_[1024];
};

}  // namespace crane::interpose
