#include "proxy/timekeeper.hpp"

#include <stdio.h>

#include <algorithm>
#include <utility>

namespace crane::proxy {

namespace {

/// How long a leader whose hosts do not agree waits for those that it has not heard of.
constexpr uint64_t kPatienceNs = 1'000'000'000;
constexpr uint64_t kSureNs = 5'000'000'000;
/// Among the hosts' clocks, the one that the leader tells of: it comes as late as a reading does.
constexpr uint32_t kAgreement = 0;

std::string seconds_text(int64_t ns) {
    char text[48];
    const double seconds = static_cast<double>(ns < 0 ? -ns : ns) / 1e9;
    snprintf(text, sizeof(text), "%.1f s %s", seconds, ns < 0 ? "behind" : "ahead of");
    return text;
}

}  // namespace

Timekeeper::Timekeeper(uint32_t self, const ClockLimits& limits)
    : self_(self), limits_(limits), clock_(limits.slew_ppm), hosts_(limits.max_skew_ns), voters_{self} {}

void Timekeeper::lead() {
    leads_ = true;
    begun_ = false;
    heard_ = {self_};
    asked_since_ns_.reset();
}

void Timekeeper::stop_leading() {
    leads_ = false;
    begun_ = false;
}

bool Timekeeper::begin(const HostTime& now, bool first) {
    if (begun_ || !leads_) return begun_;
    if (!asked_since_ns_) asked_since_ns_ = now.mono_ns;
    const bool patient = now.mono_ns - *asked_since_ns_ < kPatienceNs;
    const auto heard = std::count_if(voters_.begin(), voters_.end(),
                                     [this](uint32_t voter) { return heard_.count(voter) != 0; });
    if (static_cast<size_t>(heard) < voters_.size() / 2 + 1 && patient) return false;
    hosts_.own(self_, now.real_ns, now.mono_ns);
    real_ = hosts_.agreed(voters_, now.mono_ns);
    if (!clock_.runs()) {
        if (!real_ && patient && !hosts_.heard_all(voters_, now.mono_ns)) return false;
        const uint64_t agreed_ns = real_ ? now.mono_ns + static_cast<uint64_t>(*real_) : 0;
        clock_.set(!real_ && first ? now.real_ns : agreed_ns, now.mono_ns);
    }
    begun_ = true;
    return true;
}

void Timekeeper::heard(uint32_t from, const Reading& reading, const HostTime& now) {
    if (!leads_) return;
    hosts_.heard(from, reading.real_ns, now.mono_ns);
    heard_.insert(from);
    if (!begun_) clock_.hear(reading.cluster_ns, now.mono_ns);
}

LeaderTime Timekeeper::leader_time(const HostTime& now) const {
    return {clock_.estimate(now.mono_ns), real_ ? now.mono_ns + static_cast<uint64_t>(*real_) : 0};
}

void Timekeeper::follow(const LeaderTime& said, const HostTime& now) {
    if (leads_ || said.cluster_ns == 0) return;
    clock_.follow(said.cluster_ns, now.mono_ns);
    if (said.real_ns == 0) {
        hosts_.forget(kAgreement);
    } else {
        hosts_.heard(kAgreement, said.real_ns, now.mono_ns);
    }
    real_ = hosts_.offset(kAgreement, now.mono_ns);
}

void Timekeeper::tick(const HostTime& now) {
    hosts_.own(self_, now.real_ns, now.mono_ns);
    if (leads_ && begun_) {
        clock_.now(now.mono_ns, real_);  // up to here by what was agreed so far
        real_ = hosts_.agreed(voters_, now.mono_ns);
    } else {
        real_ = hosts_.offset(kAgreement, now.mono_ns);
    }
    const bool wrong = hosts_.wrong(self_, real_, now.mono_ns);
    if (!wrong) wrong_since_ns_.reset();
    if (wrong && !wrong_since_ns_) wrong_since_ns_ = now.mono_ns;
}

Timekeeper::Skew Timekeeper::skew(const HostTime& now) const {
    Skew out;
    if (!real_) return out;
    out.agreed = true;
    const int64_t real_ns = static_cast<int64_t>(now.mono_ns) + *real_;
    out.host_ns = static_cast<int64_t>(now.real_ns) - real_ns;
    if (clock_.runs()) out.cluster_ns = static_cast<int64_t>(clock_.estimate(now.mono_ns)) - real_ns;
    for (const uint32_t voter : voters_) {
        if (!leads_ || voter == self_) continue;
        if (const auto one = hosts_.skew(voter, *real_, now.mono_ns)) out.others_ns.emplace_back(voter, *one);
    }
    return out;
}

std::string Timekeeper::alarm(const HostTime& now) const {
    const Skew found = skew(now);
    if (!found.agreed) {
        if (!leads_ || !begun_ || !hosts_.heard_all(voters_, now.mono_ns)) return "";
        return "the clocks of the replicas' hosts do not agree, and no majority says what time it is: set "
               "them right (NTP); until then the cluster's clock follows none of them";
    }
    std::string out;
    const auto add = [&](const std::string& whose, int64_t by_ns, const std::string& remedy) {
        if (hosts_.within_bound(by_ns)) return;
        out += (out.empty() ? "" : "; ") + whose + " clock is " + seconds_text(by_ns) + remedy;
    };
    const std::string set_it = " that of a majority: set it right (NTP)";
    add("this host's", *found.host_ns, set_it);
    for (const auto& [replica, by_ns] : found.others_ns)
        add("replica " + std::to_string(replica) + "'s", by_ns, set_it);
    if (found.cluster_ns)
        add("the cluster's", *found.cluster_ns,
            " real time, which it nears by " + std::to_string(limits_.slew_ppm) + " us a second");
    return out;
}

bool Timekeeper::unfit_to_lead(const HostTime& now) const {
    return wrong_since_ns_ && now.mono_ns - *wrong_since_ns_ >= kSureNs;
}

bool Timekeeper::fit_to_lead(uint32_t replica, const HostTime& now) const {
    if (!real_) return true;
    const auto found = hosts_.skew(replica, *real_, now.mono_ns);
    return found && hosts_.within_bound(*found);
}

}  // namespace crane::proxy
