#include "proxy/divergence.hpp"

#include <string.h>

#include <algorithm>

namespace crane::proxy {

void AdmissionHistory::add(const Admission& admission) {
    all_.push_back(admission);
    if (all_.size() > kKept) all_.pop_front();
}

const Admission* AdmissionHistory::find(uint64_t index) const {
    const auto at =
        std::lower_bound(all_.begin(), all_.end(), index,
                         [](const Admission& one, uint64_t wanted) { return one.index < wanted; });
    return at != all_.end() && at->index == index ? &*at : nullptr;
}

std::vector<Admission> AdmissionHistory::range(uint64_t first, uint64_t last) const {
    std::vector<Admission> out;
    for (const Admission& one : all_) {
        if (one.index >= first && one.index <= last) out.push_back(one);
    }
    return out;
}

void DivergenceCheck::own(const AdmissionHistory& history) {
    if (ahead_.empty() || !history.last()) return;
    for (auto at = ahead_.begin(); at != ahead_.end();) {
        if (at->second.index > history.last()->index) {
            ++at;
            continue;
        }
        if (const Admission* ours = history.find(at->second.index)) {
            compare(at->first, at->second, *ours);
        } else {
            ++unchecked_;
        }
        at = ahead_.erase(at);
    }
}

void DivergenceCheck::began_anew(uint32_t from) {
    if (last_seen_.erase(from) == 0 && !diverged_.count(from)) return;
    diverged_.erase(from);
    schedule_differs_.erase(from);
    ahead_.erase(from);
    last_equal_.erase(from);
    for (auto& [index, votes] : evidence_) votes.erase(from);
    if (diverged_.count(0)) diverged_.erase(0);  // found again, if it still holds
}

void DivergenceCheck::begin_at(uint64_t index) {
    first_ = index;
    ahead_.clear();
    last_seen_.clear();
    last_equal_.clear();
    evidence_.clear();
    diverged_.clear();
    schedule_differs_.clear();
    schedule_differences_ = 0;
    answered_.clear();
    fresh_.clear();
    query_.reset();
}

void DivergenceCheck::report(uint32_t from, const Admission& admission, const AdmissionHistory& history) {
    if (admission.index < last_seen_[from]) began_anew(from);
    if (from == self_ || admission.index == 0 || admission.index == last_seen_[from]) return;
    if (admission.index < first_) return;
    last_seen_[from] = admission.index;
    if (diverged_.count(from)) return;
    if (!history.last() || admission.index > history.last()->index) {
        // Kept until our own domain gets there; of several, the one we reach first.
        if (!ahead_.emplace(from, admission).second) ++unchecked_;
        return;
    }
    if (const Admission* ours = history.find(admission.index)) {
        compare(from, admission, *ours);
    } else {
        ++unchecked_;
    }
}

void DivergenceCheck::compare(uint32_t from, const Admission& theirs, const Admission& ours) {
    ++compared_;
    last_compared_ = std::max(last_compared_, theirs.index);
    if (theirs.output == ours.output) {
        last_equal_[from] = std::max(last_equal_[from], theirs.index);
        if (theirs.schedule_hash != ours.schedule_hash) {
            ++schedule_differences_;
            schedule_differs_.try_emplace(from, theirs.index);
        } else {
            schedule_differs_.erase(from);
        }
        // The one whose word was missing is back: together with it there may be a majority.
        if (!diverged_.count(0)) return;
    }
    const uint64_t first = last_equal_[from] == 0 ? std::max<uint64_t>(first_, 1) : last_equal_[from];
    if (!query_) {
        query_ = Query{first, theirs.index};
    } else {
        query_->first = std::min(query_->first, first);
        query_->last = std::max(query_->last, theirs.index);
    }
    evidence_[theirs.index][from] = theirs;
    evidence_[ours.index][self_] = ours;
}

void DivergenceCheck::evidence(uint32_t from, const std::vector<Admission>& admissions,
                               const AdmissionHistory& history) {
    answered_.insert(from);
    for (const Admission& one : admissions) {
        if (one.index < first_) continue;
        evidence_[one.index][from] = one;
        if (const Admission* ours = history.find(one.index)) evidence_[one.index][self_] = *ours;
    }
    judge(history);
    while (evidence_.size() > 2 * AdmissionHistory::kKept) evidence_.erase(evidence_.begin());
}

bool DivergenceCheck::votes(uint32_t replica) const {
    return std::find(members_.begin(), members_.end(), replica) != members_.end();
}

bool DivergenceCheck::all_answered() const {
    const auto answered = std::count_if(answered_.begin(), answered_.end(), [this](uint32_t replica) {
        return replica != self_ && votes(replica);
    });
    return static_cast<size_t>(answered) + 1 >= std::min(members_.size(), reachable_);
}

void DivergenceCheck::judge(const AdmissionHistory&) {
    const size_t majority = members_.size() / 2 + 1;
    std::map<uint32_t, bool> equal_before;
    std::vector<uint64_t> without_majority;
    for (const auto& [index, all] : evidence_) {
        const Hash128* agreed = nullptr;
        for (const auto& [replica, vote] : all) {
            const Hash128& output = vote.output;
            const auto same = std::count_if(all.begin(), all.end(), [&](const auto& other) {
                return votes(other.first) && other.second.output == output;
            });
            if (static_cast<size_t>(same) >= majority) agreed = &output;
        }
        if (!agreed) without_majority.push_back(index);
        if (!agreed) continue;
        for (const auto& [replica, vote] : all) {
            if (vote.output == *agreed) {
                equal_before[replica] = true;
            } else if (!diverged_.count(replica)) {
                diverged_[replica] = {replica, index, equal_before[replica]};
                fresh_.push_back(diverged_[replica]);
            }
        }
    }
    // One that is known to differ has no say in whether the others do.
    const auto undecided_at = std::find_if(without_majority.begin(), without_majority.end(),
                                           [this](uint64_t index) { return differ_at(index); });
    const uint64_t undecided = undecided_at != without_majority.end() ? *undecided_at : 0;
    const bool any =
        std::any_of(diverged_.begin(), diverged_.end(), [](const auto& one) { return one.first != 0; });
    if (undecided == 0 && any) {
        diverged_.erase(0);
    } else if (undecided != 0 && all_answered() && !diverged_.count(0)) {
        diverged_[0] = {0, undecided, false};
        fresh_.push_back(diverged_[0]);
    }
}

bool DivergenceCheck::differ_at(uint64_t index) const {
    const Hash128* first = nullptr;
    for (const auto& [replica, vote] : evidence_.at(index)) {
        if (diverged_.count(replica)) continue;
        if (first && vote.output != *first) return true;
        first = &vote.output;
    }
    return false;
}

std::optional<DivergenceCheck::Query> DivergenceCheck::take_query() {
    std::optional<Query> out = query_;
    query_.reset();
    if (out) answered_.clear();
    return out;
}

std::vector<DivergenceCheck::Finding> DivergenceCheck::take_findings() {
    std::vector<Finding> out = std::move(fresh_);
    fresh_.clear();
    return out;
}

std::string encode_admissions(const std::vector<Admission>& admissions) {
    return {reinterpret_cast<const char*>(admissions.data()), admissions.size() * sizeof(Admission)};
}

std::vector<Admission> decode_admissions(std::string_view bytes) {
    std::vector<Admission> out(std::min(bytes.size() / sizeof(Admission), AdmissionHistory::kKept));
    if (!out.empty()) memcpy(out.data(), bytes.data(), out.size() * sizeof(Admission));
    return out;
}

}  // namespace crane::proxy
