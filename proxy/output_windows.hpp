// How much the server may send to each client beyond what that client has taken. Pure.
//
// What was sent and not taken lies in craned's memory, so windows are promises of memory. Rules:
//  - Each connection always has the first window beyond what its client has taken: nobody stands still
//    because others do not read.
//  - What windows are larger than that comes out of one stock (a setting); the fuller it is, the smaller they
//    are.
#pragma once

#include <algorithm>
#include <cstdint>

#include "timebubble/limits.hpp"

namespace crane::proxy {

/// A connection's window, as offsets in its output.
struct OutputWindow {
    uint64_t end = timebubble::kFirstWindowBytes;  ///< the server may send up to here
    uint64_t sent = 0;
    uint64_t taken = 0;
    uint64_t size = timebubble::kFirstWindowBytes;  ///< at the last raise; grows with use

    uint64_t unsent() const { return end - std::min(end, sent); }
    uint64_t common() const {
        const uint64_t promised = end - std::min(end, taken);
        return promised - std::min(promised, timebubble::kFirstWindowBytes);
    }
};

class OutputWindows {
  public:
    explicit OutputWindows(uint64_t stock_bytes) : stock_bytes_(stock_bytes) {}

    /// A new connection's window. True: it is larger than the first one, which goes without saying.
    bool open(OutputWindow& window);
    /// A window that another primary has opened.
    void adopt(const OutputWindow& window) { used_ += window.common(); }
    void close(const OutputWindow& window) { used_ -= window.common(); }
    void taken(OutputWindow& window, uint64_t bytes);
    /// Raises the window's end if that is worth a decision. False: not now.
    bool raise(OutputWindow& window);
    /// What connections hold that the server has closed and whose clients have not taken all yet.
    void set_closing(uint64_t bytes) { closing_ = bytes; }

    uint64_t used() const { return used_ + closing_; }

  private:
    uint64_t left() const { return stock_bytes_ - std::min(stock_bytes_, used_ + closing_); }
    void set(OutputWindow& window, uint64_t size);

    uint64_t stock_bytes_;
    uint64_t used_ = 0;
    uint64_t closing_ = 0;
};

}  // namespace crane::proxy
