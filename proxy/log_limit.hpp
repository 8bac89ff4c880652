// How often one kind of line is written to craned.log. What a server, its clients or strangers do at will has
// lines, too; each kind gets so many in a minute, and then one that says how many more there were. Pure.
//
// A line's kind is its beginning without what varies (digits). Kinds share a fixed number of places by their
// hash: who makes up ever new kinds is bounded as well, and what is counted takes no memory that grows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crane::proxy {

class LogLimit {
  public:
    static constexpr uint64_t kWindowNs = 60ULL * 1'000'000'000;
    static constexpr uint64_t kMost = 100;  ///< of a kind, in a window
    static constexpr size_t kPlaces = 256;

    /// Is this line to be written?
    bool admits(std::string_view line, uint64_t now_ns);
    /// What is to be written before it: of each kind that was cut short how many were left out, when the
    /// window is over.
    std::vector<std::string> take_summaries();

  private:
    struct Place {
        uint64_t seen = 0;  ///< in this window
        std::string first_left_out;
    };

    void end_window(uint64_t now_ns);

    std::array<Place, kPlaces> places_;
    std::vector<std::string> summaries_;
    uint64_t since_ns_ = 0;
};

}  // namespace crane::proxy
