#include "proxy/tool/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "base/clock.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kBeginsAfterNs = 1'000'000'000, kSayEveryNs = 200'000'000;
constexpr uint64_t kBarCells = 30;
constexpr char kClearLine[] = "\r\033[K";

}  // namespace

std::string size_text(uint64_t bytes) {
    const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
    double size = static_cast<double>(bytes);
    size_t unit = 0;
    for (; size >= 1000 && unit + 1 < std::size(units); ++unit) size /= 1000;
    char text[32];
    snprintf(text, sizeof(text), size < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", size, units[unit]);
    return text;
}

Progress::Screen Progress::terminal() {
    Screen screen{nullptr, monotonic_ns};
    if (isatty(STDERR_FILENO))
        screen.write = [](const std::string& text) { std::cerr << text << std::flush; };
    return screen;
}

Progress::Progress(std::string what, uint64_t total, Screen screen)
    : what_(std::move(what)), total_(total), screen_(std::move(screen)), began_ns_(screen_.now_ns()) {}

Progress::~Progress() {
    if (said_ns_ != 0) screen_.write(kClearLine);
}

void Progress::at(uint64_t bytes) {
    if (!screen_.write || total_ == 0) return;
    const uint64_t now_ns = screen_.now_ns();
    if (now_ns - began_ns_ < kBeginsAfterNs || (said_ns_ != 0 && now_ns - said_ns_ < kSayEveryNs)) return;
    said_ns_ = now_ns;
    const uint64_t done = std::min(bytes, total_);
    const auto share = static_cast<double>(done) / static_cast<double>(total_);
    const auto cells = static_cast<size_t>(share * kBarCells);
    screen_.write(kClearLine + what_ + " [" + std::string(cells, '#') + std::string(kBarCells - cells, '.') +
                  "] " + std::to_string(static_cast<int>(share * 100)) + " % of " + size_text(total_));
}

checkpoint::Stop Progress::counting() {
    return [this] {
        at(counted_);
        counted_ += checkpoint::kSumPieceBytes;
        return false;
    };
}

checkpoint::Check Progress::watching(std::function<uint64_t()> written) {
    return [this, written = std::move(written)] { at(written()); };
}

}  // namespace crane::proxy
