#include "paxos/core/log_window.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace crane::paxos {

LogWindow::LogWindow(const LogReader& reader, const LogPosition& start, const LogPosition& end)
    : reader_(reader), start_(start), end_(end) {
    CRANE_CHECK(start.index <= end.index);
}

LogPosition LogWindow::position(uint64_t index) const {
    CRANE_CHECK(index >= start_.index && index <= end_.index);
    if (index == end_.index) return end_;
    if (index == start_.index) return start_;
    if (in_memory(index)) {
        const Entry& entry = held_[index - first_held()];
        return {entry.index, entry.view, entry.chain};
    }
    std::vector<Entry> read;
    reader_.read(index, index, 1, read);
    CRANE_CHECK(read.size() == 1 && read[0].index == index);
    return {index, read[0].view, read[0].chain};
}

bool LogWindow::copy(uint64_t first, uint64_t last, size_t max_entries, size_t max_bytes,
                     std::vector<Entry>& out) const {
    CRANE_CHECK(first > start_.index && first <= last && last <= end_.index && max_entries > 0);
    last = std::min(last, first + max_entries - 1);
    if (!in_memory(first)) {
        reader_.read(first, std::min(last, first_held() - 1), max_bytes, out);
        return true;
    }
    size_t bytes = 0;
    for (uint64_t index = first; index <= last; ++index) {
        const Entry& entry = held_[index - first_held()];
        bytes += entry.size_bytes();
        if (index > first && bytes > max_bytes) break;
        out.push_back(entry);
    }
    return false;
}

void LogWindow::append(Entry entry) {
    CRANE_CHECK(entry.index == end_.index + 1);
    CRANE_CHECK(entry.view >= end_.view);
    CRANE_CHECK(entry.chain == chain_hash(end_.chain, entry));
    end_ = {entry.index, entry.view, entry.chain};
    held_bytes_ += entry.size_bytes();
    held_.push_back(std::move(entry));
}

void LogWindow::truncate_from(uint64_t index) {
    CRANE_CHECK(index > start_.index && index <= end_.index);
    const LogPosition last = position(index - 1);
    while (!held_.empty() && held_.back().index >= index) {
        held_bytes_ -= held_.back().size_bytes();
        held_.pop_back();
    }
    end_ = last;
}

void LogWindow::forget_before(const LogPosition& start) {
    CRANE_CHECK(start.index >= start_.index && position(start.index) == start);
    while (!held_.empty() && held_.front().index <= start.index) {
        held_bytes_ -= held_.front().size_bytes();
        held_.pop_front();
    }
    start_ = start;
}

void LogWindow::trim(uint64_t upto, size_t max_entries, size_t max_bytes) {
    while (!held_.empty() && held_.front().index <= upto &&
           (held_.size() > max_entries || held_bytes_ > max_bytes)) {
        held_bytes_ -= held_.front().size_bytes();
        held_.pop_front();
    }
}

}  // namespace crane::paxos
