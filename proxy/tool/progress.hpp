// How far a long piece of work is, on one line of standard error: on a terminal alone, and when it has taken
// a second. The line goes when the work is done, so that what is said then stands by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/command.hpp"
#include "checkpoint/file_sum.hpp"

namespace crane::proxy {

class Progress {
  public:
    /// Of whom it is shown to and when it is; nothing of it outside tests.
    struct Screen {
        std::function<void(const std::string&)> write;  ///< null: nobody sees it
        std::function<uint64_t()> now_ns;
    };
    static Screen terminal();

    /// `total` bytes are to be worked on.
    Progress(std::string what, uint64_t total, Screen screen = terminal());
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// So many are done.
    void at(uint64_t bytes);

    /// For what is summed: each question counts a piece. Never stops it.
    checkpoint::Stop counting();
    /// For a program that writes these files, in bytes of them.
    checkpoint::Check watching(std::function<uint64_t()> written);

  private:
    std::string what_;
    uint64_t total_;
    Screen screen_;
    uint64_t began_ns_, said_ns_ = 0, counted_ = 0;
};

/// "1.2 GB"
std::string size_text(uint64_t bytes);

}  // namespace crane::proxy
