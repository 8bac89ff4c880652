// crane audit: are the replicas' outputs equal, all of them, and up to where? Said once or again and again,
// in a statement that is signed, to the replicas (their alarm and metrics), and by the exit status.
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "paxos/link/certificate.hpp"
#include "proxy/config.hpp"
#include "proxy/output_marks.hpp"
#include "proxy/tool/audit_round.hpp"
#include "proxy/tool/audit_statement.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using nlohmann::json;
using Verdict = AuditRound::Verdict;

namespace {

constexpr int kReadLimitMs = 120'000;  // a log of some GiB, once
constexpr int kPatienceMs = 10'000;    // with a replica that is just being started
constexpr unsigned kPauseUs = 200'000;

const char* verdict_name(Verdict verdict) {
    return verdict == Verdict::kEqual ? "equal" : verdict == Verdict::kDifferent ? "different" : "incomplete";
}

int exit_status(Verdict verdict) {
    return verdict == Verdict::kEqual ? kExitOk : verdict == Verdict::kDifferent ? kExitNo : kExitError;
}

/// Of a replica here: the one that is named, or else in its directory, or in /etc/crane.
Config config_here(const std::string& state_dir, const std::string& named) {
    if (!named.empty()) return load_config(named);
    for (const ReplicaDir& one : find_replicas(state_dir))
        if (const std::string path = config_file(one.path); !path.empty()) return load_config(path);
    throw std::runtime_error("no configuration of a replica is in " + state_dir +
                             ": name one with --config, it says whose key signs");
}

/// All replicas, and the way to their logs.
class Cluster {
  public:
    explicit Cluster(std::string state_dir) : state_dir_(std::move(state_dir)) {}

    /// Those that have a server, and so a log.
    std::vector<uint32_t> replicas() {
        std::vector<uint32_t> out;
        ways_.clear();
        for (const ReplicaDir& one : whole_cluster(state_dir_)) {
            bool witness = false;
            try {
                witness =
                    ask_replica(one, {{"cmd", "status"}}).value("witness", false);  // and writes its log out
            } catch (const std::runtime_error&) {
                witness = !one.elsewhere && is_witness(one.path);
            }
            if (witness) continue;
            ways_.emplace(one.id, one);
            out.push_back(one.id);
        }
        return out;
    }

    json mark(uint32_t replica, std::optional<uint64_t> at, bool in_words) {
        const ReplicaDir& way = ways_.at(replica);
        if (!way.elsewhere && !is_remote(way.path)) {
            std::unique_ptr<OutputMarks>& marks = marks_[replica];
            if (!marks) marks = std::make_unique<OutputMarks>(way.path);
            return marks->mark(at, in_words);
        }
        json request = {{"cmd", "output"}, {"words", in_words}};
        if (at) request["at"] = *at;
        json answer = ask_replica(way, request, kReadLimitMs);
        if (answer.contains("error")) throw std::runtime_error(answer["error"].get<std::string>());
        return answer;
    }

    /// So that their alarms and metrics show it. Who is not there is told the next time.
    void tell(const AuditRound& round) const {
        for (const auto& [replica, way] : ways_) {
            try {
                ask_replica(way, {{"cmd", "audit"},
                                  {"records", round.equal ? round.equal->records : 0},
                                  {"difference", round.difference}});
            } catch (const std::runtime_error&) {
            }
        }
    }

  private:
    std::string state_dir_;
    std::map<uint32_t, ReplicaDir> ways_;
    std::map<uint32_t, std::unique_ptr<OutputMarks>> marks_;
};

json to_json(const AuditRound& round, const std::string& cluster) {
    const int64_t now = time(nullptr);
    json out = {{"crane", CRANE_VERSION},
                {"cluster", cluster},
                {"audited_s", now},
                {"audited", paxos::utc_text(now)},
                {"verdict", verdict_name(round.verdict)},
                {"equal", nullptr},
                {"replicas", json::array()}};
    if (round.equal)
        out["equal"] = {{"records", round.equal->records},
                        {"admitted_index", round.equal->admitted_index},
                        {"chain", round.equal->chain}};
    for (const auto& [replica, records] : round.records)
        out["replicas"].push_back({{"replica", replica}, {"records", records}});
    for (const auto& [replica, reason] : round.reasons)
        out["not_compared"].push_back({{"replica", replica}, {"reason", reason}});
    if (!round.difference.empty()) out["difference"] = round.difference;
    if (round.first_different) out["first_different_record"] = *round.first_different;
    for (const auto& [replica, words] : round.at_difference)
        out["at_difference"].push_back({{"replica", replica}, {"record", words}});
    return out;
}

void print(const AuditRound& round) {
    if (round.equal)
        std::cout << "equal on all replicas up to record " << round.equal->records << " (log entry "
                  << round.equal->admitted_index << "), chain " << round.equal->chain << "\n";
    for (const auto& [replica, reason] : round.reasons)
        std::cout << "not compared: replica " << replica << ": " << reason << "\n";
    if (!round.difference.empty()) std::cout << "DIFFERENT: " << round.difference << "\n";
    for (const auto& [replica, words] : round.at_difference)
        std::cout << "    replica " << replica << ": " << words << "\n";
    std::cout << std::flush;
}

std::string authority_of(const Config& config, const std::string& state_dir) {
    return config.tls.configured() ? read_small_file(config.tls.ca)
                                   : read_small_file(state_dir + "/audit.pub");
}

class Audit {
  public:
    Audit(const std::string& state_dir, const AuditRequest& request, bool as_json)
        : config_(config_here(state_dir, request.config)),
          key_(signing_key(config_, state_dir)),
          file_(request.statement.empty() ? state_dir + "/audit.statement" : request.statement),
          as_json_(as_json),
          cluster_(state_dir),
          auditor_([this](uint32_t replica, std::optional<uint64_t> at, bool in_words) {
              return cluster_.mark(replica, at, in_words);
          }) {
        std::error_code error;
        if (!fs::exists(file_, error)) return;
        try {
            const json before = json::parse(
                check_statement(read_small_file(file_), authority_of(config_, state_dir)).statement);
            if (before.value("cluster", "") != config_.cluster_id)
                throw std::runtime_error("it is of cluster " + before.value("cluster", ""));
            equal_ = equal_in(before);
        } catch (const std::runtime_error& why) {
            throw std::runtime_error(file_ + " is there, and is not gone on from: " + why.what() +
                                     ". Move it away, or give another file with --statement");
        }
    }

    Verdict round() {
        const uint64_t end_ns = monotonic_ns() + uint64_t{kPatienceMs} * 1'000'000;
        AuditRound round;
        for (;;) {
            const std::vector<uint32_t> replicas = cluster_.replicas();
            if (replicas.size() < 2)
                throw std::runtime_error("there is one log only: does the replica here run? (crane status)");
            round = auditor_.compare(replicas, equal_);
            if (round.verdict != Verdict::kIncomplete || monotonic_ns() > end_ns) break;
            usleep(kPauseUs);
        }
        const json statement = to_json(round, config_.cluster_id);
        if (round.verdict != Verdict::kIncomplete) {
            replace_file(file_, sign_statement(statement, key_));
            cluster_.tell(round);
        }
        if (as_json_) {
            std::cout << statement.dump() << std::endl;
        } else if (round.verdict != said_ || round.equal != equal_ || !round.difference.empty()) {
            print(round);
        }
        said_ = round.verdict;
        equal_ = round.equal;
        return round.verdict;
    }

  private:
    const Config config_;
    const SigningKey key_;
    const std::string file_;
    const bool as_json_;
    Cluster cluster_;
    Auditor auditor_;
    std::optional<EqualUpTo> equal_;
    std::optional<Verdict> said_;
};

int verify(const std::string& state_dir, const AuditRequest& request, bool as_json) {
    std::string why, authority = request.authority;
    CheckedStatement checked;
    if (authority.empty()) {
        const Config config = config_here(state_dir, request.config);
        authority = config.tls.configured() ? config.tls.ca : state_dir + "/audit.pub";
    }
    try {
        checked = check_statement(read_small_file(request.verify), read_small_file(authority));
    } catch (const std::runtime_error& error) {
        why = error.what();
    }
    if (!why.empty()) {
        if (as_json)
            std::cout << json{{"good", false}, {"error", why}}.dump() << "\n";
        else
            std::cerr << "crane: " << request.verify << ": " << why << "\n";
        return kExitNo;
    }
    const json stated = json::parse(checked.statement);
    if (as_json) {
        std::cout << json{{"good", true}, {"signer", checked.signer}, {"statement", stated}}.dump() << "\n";
        return kExitOk;
    }
    std::cout << "good, signed by " << (checked.signer.empty() ? "the key " + authority : checked.signer)
              << " on " << stated.value("audited", "?") << ": ";
    if (const auto equal = equal_in(stated))
        std::cout << "equal on all replicas up to record " << equal->records << " (log entry "
                  << equal->admitted_index << "), chain " << equal->chain;
    else
        std::cout << "never found equal";
    if (stated.contains("difference"))
        std::cout << "; DIFFERENT: " << stated["difference"].get<std::string>();
    std::cout << "\n";
    return kExitOk;
}

}  // namespace

int compare_by_chain(const std::string& state_dir, bool as_json) {
    Cluster cluster(state_dir);
    Auditor auditor([&](uint32_t replica, std::optional<uint64_t> at, bool in_words) {
        return cluster.mark(replica, at, in_words);
    });
    const AuditRound round = auditor.compare(cluster.replicas(), std::nullopt);
    if (as_json)
        std::cout << to_json(round, "").dump() << "\n";
    else
        print(round);
    return exit_status(round.verdict);
}

int tool_audit(const std::string& state_dir, const AuditRequest& request, bool as_json) {
    if (!request.verify.empty()) return verify(state_dir, request, as_json);
    Audit audit(state_dir, request, as_json);
    if (!request.follow) return exit_status(audit.round());
    sigset_t ends;
    sigemptyset(&ends);
    for (const int number : {SIGINT, SIGTERM}) sigaddset(&ends, number);
    sigprocmask(SIG_BLOCK, &ends, nullptr);
    // A replica that is down is no reason to end: whoever kept this going would have to start it anew.
    for (std::string told;;) {
        Verdict verdict = Verdict::kIncomplete;
        try {
            verdict = audit.round();
            told.clear();
        } catch (const std::runtime_error& why) {
            if (told != why.what())
                std::cerr << "crane: " << why.what() << "; it is tried again" << std::endl;
            told = why.what();
        }
        const timespec pause{static_cast<time_t>(request.every_s), 0};
        if (sigtimedwait(&ends, nullptr, &pause) > 0) return exit_status(verdict);
    }
}

}  // namespace crane::proxy
