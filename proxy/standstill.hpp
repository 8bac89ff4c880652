// A server that computes for ever, without an operation that anybody could wait for, stands at the same place
// of its schedule on every replica. This is how they agree that it is to be ended there: the leader, whose
// server has stood for the limit, asks all to let theirs go no further; when a majority's stand there, and
// nobody's has gone on, the end is decided. Pure: no I/O and no clock of its own.
//
// Where a server turns out to go on, all gates are opened, and nothing has happened. One that is to be ended
// by the operator's will may take steps for ever: all stop where they are, then go on to where the furthest
// is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "proxy/domain_gate.hpp"

namespace crane::proxy {

/// What a leader says to the others; clock 0: go on.
struct StandWord {
    uint64_t generation;  ///< of the server
    Place place;
};

/// What they answer: where that server of theirs is.
struct StandAnswer {
    uint64_t generation;
    Whereabouts where;
};

std::string encode(const StandWord& word);
std::string encode(const StandAnswer& answer);
std::optional<StandWord> decode_stand_word(std::string_view bytes);
std::optional<StandAnswer> decode_stand_answer(std::string_view bytes);

class Standstill {
  public:
    /// `limit_ns` 0: never.
    explicit Standstill(uint64_t limit_ns) : limit_ns_(limit_ns) {}
    void set_limit(uint64_t limit_ns) { limit_ns_ = limit_ns; }

    enum class Verdict {
        kNothing,
        kAsk,   ///< all are to be told where to stand (place()), again and again
        kGoOn,  ///< all are to be told to go on
        kEnd,   ///< the end at place() is to be proposed
    };
    struct Look {
        uint64_t now_ns;
        uint64_t generation;
        Whereabouts own;
        std::set<uint32_t> others;  ///< voters that can be reached, besides itself
        size_t voters;              ///< all, itself included
        /// The operator wants the end: a server that works on files for ever stands, too, and one that is
        /// kept from computing (stopped, asleep in the kernel with the turn).
        bool forced;
        /// That the server has used; asked for seldom. One that somebody has stopped does not compute.
        std::function<double()> cpu_seconds;
        std::function<uint64_t()> io_bytes;  ///< what it read and wrote: one that does that works on files
    };
    /// The leader's, at its own server, now and then.
    Verdict lead(const Look& look);
    /// Leads no more, or there is no such server.
    void forget();
    void answered(uint32_t replica, const StandAnswer& answer) { answers_[replica] = answer; }

    bool asks() const { return asked_; }
    StandWord word() const { return {generation_, asked_ ? place_ : Place{}}; }
    Place place() const { return place_; }
    /// For how long it has stood there.
    uint64_t stood_ns(uint64_t now_ns) const { return now_ns - since_ns_; }

  private:
    bool stands(const Look& look) const;
    bool is_due(const Look& look);
    Verdict judge(const Look& look);
    Verdict let_go(uint64_t now_ns);

    uint64_t limit_ns_;
    uint64_t generation_ = 0;
    Place place_;
    uint64_t since_ns_ = 0;  ///< it has been there
    uint64_t asked_ns_ = 0;
    uint64_t not_before_ns_ = 0;  ///< it is asked again
    bool asked_ = false;
    double cpu_seconds_ = -1;  ///< halfway to the limit; below 0: not there yet
    uint64_t io_bytes_ = 0;    ///< then, too
    std::map<uint32_t, StandAnswer> answers_;
};

}  // namespace crane::proxy
