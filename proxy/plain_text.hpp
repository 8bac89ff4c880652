// Text that somebody else wrote, on its way into craned's log and status: it can forge no line there.
#pragma once

#include <string>
#include <string_view>

namespace crane::proxy {

/// Control characters become question marks; at most `most` bytes.
inline std::string one_line(std::string_view text, size_t most = 4096) {
    std::string line(text.substr(0, most));
    for (char& c : line) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    }
    return line;
}

}  // namespace crane::proxy
