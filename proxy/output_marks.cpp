#include "proxy/output_marks.hpp"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "proxy/output_words.hpp"

namespace crane::proxy {

namespace {

/// The record behind `at`; "" where the log ends there.
std::string words_at(const std::string& path, uint64_t at) {
    OutputLogReader log(path);
    while (log.next() == OutputLogReader::Next::kRecord)
        if (log.number() == at) return describe_record(log);
    return "";
}

}  // namespace

void OutputMarks::open() {
    log_ = std::make_unique<OutputLogReader>(path_);
    kept_.assign(1, log_->position());
}

/// To the next record. False: there is none yet.
bool OutputMarks::step() {
    const OutputLogReader::Next next = log_->next();
    torn_ = next == OutputLogReader::Next::kTorn;
    if (next != OutputLogReader::Next::kRecord) return false;
    kept_.push_back(log_->position());
    if (kept_.size() > kKept) kept_.pop_front();
    return true;
}

nlohmann::json OutputMarks::mark(std::optional<uint64_t> at, bool in_words) {
    if (!log_ || !log_->look_again() || (at && *at < kept_.front().records)) open();
    const std::string whose = "replica " + std::to_string(log_->header().replica) + ": " + log_->path();
    if (at && *at < log_->first_number())
        throw std::runtime_error(whose + " begins at record " + std::to_string(log_->first_number()) +
                                 ", behind " + std::to_string(*at));
    while ((!at || kept_.back().records < *at) && step()) {
    }
    if (at && kept_.back().records < *at)
        throw std::runtime_error(whose + " has " + std::to_string(kept_.back().records) + " records, not " +
                                 std::to_string(*at) + " yet");
    if (!at && torn_ && log_->damaged())
        throw std::runtime_error(whose + " is damaged behind record " + std::to_string(kept_.back().records) +
                                 ", and what its replica puts out is no longer compared. Restart its craned: "
                                 "the log is then made anew by replay");
    const OutputPosition& here = at ? known(*at) : kept_.back();
    nlohmann::json out = {{"replica", log_->header().replica},
                          {"log", log_->path()},
                          {"records", here.records},
                          {"at", here.records},
                          {"chain", here.chain.hex()},
                          {"first_record", log_->first_number()},
                          {"torn_end", torn_},
                          {"admitted_index", here.admitted_index}};
    if (in_words) out["record"] = words_at(path_, here.records);
    return out;
}

}  // namespace crane::proxy
