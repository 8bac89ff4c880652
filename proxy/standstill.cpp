#include "proxy/standstill.hpp"

#include <algorithm>
#include <cstring>

namespace crane::proxy {

namespace {

/// Of half the limit, at least: three replicas may share one processor with others.
constexpr double kBusyShare = 0.01;

struct AnswerBytes {
    uint64_t generation, clock, steps;
    uint32_t between, stopped;
};

template <typename T>
std::string bytes_of(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace

std::string encode(const StandWord& word) {
    return bytes_of(word);
}

std::string encode(const StandAnswer& answer) {
    return bytes_of(AnswerBytes{answer.generation, answer.where.at.clock, answer.where.at.steps,
                                answer.where.between, answer.where.stopped});
}

std::optional<StandWord> decode_stand_word(std::string_view bytes) {
    StandWord word{};
    if (bytes.size() != sizeof(word)) return std::nullopt;
    std::memcpy(static_cast<void*>(&word), bytes.data(), sizeof(word));
    return word;
}

std::optional<StandAnswer> decode_stand_answer(std::string_view bytes) {
    AnswerBytes plain{};
    if (bytes.size() != sizeof(plain)) return std::nullopt;
    std::memcpy(&plain, bytes.data(), sizeof(plain));
    return StandAnswer{plain.generation,
                       {{plain.clock, plain.steps}, plain.between != 0, plain.stopped != 0}};
}

void Standstill::forget() {
    asked_ = false;
    since_ns_ = not_before_ns_ = 0;
    cpu_seconds_ = -1;
    place_ = {};
    answers_.clear();
}

Standstill::Verdict Standstill::let_go(uint64_t now_ns) {
    asked_ = false;
    answers_.clear();
    not_before_ns_ = now_ns + 2 * limit_ns_;
    return Verdict::kGoOn;
}

bool Standstill::stands(const Look& look) const {
    const Whereabouts& own = look.own;
    if (look.generation != generation_ || own.at.clock != place_.clock || own.at.clock == 0) return false;
    return look.forced || (own.at.steps == place_.steps && own.between && !own.stopped);
}

/// It has stood for the limit, and computed; or the operator wants its end, whatever it stands at.
bool Standstill::is_due(const Look& look) {
    const uint64_t stood_ns = look.now_ns - since_ns_;
    if (limit_ns_ == 0 || stood_ns < limit_ns_ / 2 || look.now_ns < not_before_ns_) return false;
    if (cpu_seconds_ < 0) {
        cpu_seconds_ = look.cpu_seconds();
        io_bytes_ = look.io_bytes();
    }
    if (stood_ns < limit_ns_) return false;
    if (!look.forced && look.io_bytes() != io_bytes_) {
        since_ns_ = look.now_ns;
        cpu_seconds_ = -1;
        return false;
    }
    const double limit_s = static_cast<double>(limit_ns_) / 1e9;
    return look.forced || look.cpu_seconds() - cpu_seconds_ > limit_s * kBusyShare;
}

Standstill::Verdict Standstill::judge(const Look& look) {
    const Place asked = place_;
    bool all = look.own.between && look.own.at == asked;
    size_t stand = all;
    for (const uint32_t other : look.others) {
        const auto found = answers_.find(other);
        if (found == answers_.end() || found->second.generation != generation_) {
            all = false;
            continue;
        }
        const Whereabouts& where = found->second.where;
        const bool further = where.at.clock > asked.clock || (!look.forced && where.at > asked);
        if (further || (!look.forced && where.stopped)) return let_go(look.now_ns);
        place_ = std::max(place_, where.at);
        const bool there = where.between && where.at == asked;
        stand += there;
        all = all && there;
    }
    // One that is far behind comes there as well; nobody waits for it longer than for the server itself.
    const bool waited = look.now_ns - asked_ns_ >= limit_ns_;
    const bool agreed = place_ == asked && look.own.at == asked && stand > look.voters / 2;
    return agreed && (all || waited) ? Verdict::kEnd : Verdict::kAsk;
}

Standstill::Verdict Standstill::lead(const Look& look) {
    if (!stands(look)) {
        if (look.own.at != place_ || look.generation != generation_) not_before_ns_ = 0;
        generation_ = look.generation;
        place_ = look.own.at;
        since_ns_ = look.now_ns;
        cpu_seconds_ = -1;
        return asked_ ? let_go(look.now_ns) : Verdict::kNothing;
    }
    place_ = std::max(place_, look.own.at);
    if (asked_) return judge(look);
    if (!is_due(look)) return Verdict::kNothing;
    asked_ = true;
    asked_ns_ = look.now_ns;
    answers_.clear();
    return Verdict::kAsk;
}

}  // namespace crane::proxy
