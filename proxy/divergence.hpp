// Do all replicas do the same? Pure.
//
// Every acknowledgement carries the sender's last admission: its log index, the output hash there, the
// schedule hash there. The leader compares each with its own at that index. When one differs, it asks all
// replicas for their recent admissions, so that a quorum tells who is wrong and from which index on. A
// comparison that could not be made (the index is gone, or the reports never met) is counted as unchecked;
// nothing unchecked is ever called equal. Where those who can be asked differ and are no majority, nobody
// knows who is right, and that is said until a majority does.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/output_format.hpp"

namespace crane::proxy {

struct Admission {
    uint64_t index = 0;
    Hash128 output;
    uint64_t schedule_hash = 0;
};

/// The last admissions of this replica's domain.
class AdmissionHistory {
  public:
    static constexpr size_t kKept = 4096;
    void add(const Admission& admission);
    const Admission* find(uint64_t index) const;
    const Admission* last() const { return all_.empty() ? nullptr : &all_.back(); }
    uint64_t first_index() const { return all_.empty() ? 0 : all_.front().index; }
    std::vector<Admission> range(uint64_t first, uint64_t last) const;
    void clear() { all_.clear(); }

  private:
    std::deque<Admission> all_;
};

class DivergenceCheck {
  public:
    struct Finding {
        uint32_t replica;  ///< 0: replicas differ, but no majority agrees
        uint64_t index;    ///< the first admission at which it differs, of those that could be compared
        bool exact;        ///< the admission just before was compared and equal
    };
    struct Query {
        uint64_t first;
        uint64_t last;
    };

    /// `members`: those who vote, and have a server. Others (learners) are compared, and tell nothing of who
    /// is right.
    DivergenceCheck(uint32_t self, std::vector<uint32_t> members)
        : self_(self), members_(std::move(members)) {}

    void set_members(std::vector<uint32_t> members) { members_ = std::move(members); }
    /// With how many of them, this one included, there is a link: those who are gone cannot be asked.
    void set_reachable(size_t replicas) { reachable_ = replicas; }

    /// This replica's own domain has admitted.
    void own(const AdmissionHistory& history);
    /// A peer's last admission, from its acknowledgement.
    void report(uint32_t from, const Admission& admission, const AdmissionHistory& history);
    /// A peer's domain is made anew, and has admitted nothing: what was known of the old one is void.
    void began_anew(uint32_t from);
    /// It was decided whose state counts from entry `index` on: what was found is void, and nothing from
    /// before that entry is compared any more.
    void begin_at(uint64_t index);
    /// A peer's answer to a query.
    void evidence(uint32_t from, const std::vector<Admission>& admissions, const AdmissionHistory& history);

    /// What to ask all peers now, if something differs and has not been asked for.
    std::optional<Query> take_query();
    /// New findings since the last call.
    std::vector<Finding> take_findings();

    /// By replica; 0 while replicas differ and no majority says who is right.
    const std::map<uint32_t, Finding>& diverged() const { return diverged_; }
    /// Replicas whose output is equal and whose schedule is not, with the first index at which that was seen.
    const std::map<uint32_t, uint64_t>& schedule_differs() const { return schedule_differs_; }
    uint64_t compared() const { return compared_; }
    uint64_t unchecked() const { return unchecked_; }
    uint64_t last_compared_index() const { return last_compared_; }
    uint64_t schedule_differences() const { return schedule_differences_; }

  private:
    void compare(uint32_t from, const Admission& theirs, const Admission& ours);
    void judge(const AdmissionHistory& history);
    bool votes(uint32_t replica) const;
    bool all_answered() const;
    /// Of those that are not known to differ, some do.
    bool differ_at(uint64_t index) const;

    uint32_t self_;
    std::vector<uint32_t> members_;
    uint64_t first_ = 0;                      ///< nothing before this entry is compared
    std::map<uint32_t, Admission> ahead_;     ///< of peers whose domain is ahead of ours
    std::map<uint32_t, uint64_t> last_seen_;  ///< newest index reported
    std::map<uint32_t, uint64_t> last_equal_;
    std::map<uint64_t, std::map<uint32_t, Admission>> evidence_;
    std::map<uint32_t, Finding> diverged_;
    std::map<uint32_t, uint64_t> schedule_differs_;
    std::set<uint32_t> answered_;  ///< since the last query
    size_t reachable_ = SIZE_MAX;  ///< not told: everybody
    std::vector<Finding> fresh_;
    std::optional<Query> query_;
    uint64_t compared_ = 0;
    uint64_t unchecked_ = 0;
    uint64_t last_compared_ = 0;
    uint64_t schedule_differences_ = 0;
};

std::string encode_admissions(const std::vector<Admission>& admissions);
std::vector<Admission> decode_admissions(std::string_view bytes);

}  // namespace crane::proxy
