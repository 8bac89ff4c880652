// The daemon: the loop, the control socket and the signals, around one replica at a time.
//
// When the domain is taken away, the replica hands leadership over, is taken down, and a new one is made in
// its place: fresh segment, fresh container, the log replayed from its first index. One that does not stay up
// is tried again for ever, after pauses that grow, and that is said.
// Files: craned.cpp (its life), craned_orders.cpp (what it is asked).
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/known_sums.hpp"
#include "proxy/admin_server.hpp"
#include "proxy/audit_note.hpp"
#include "proxy/config.hpp"
#include "proxy/control.hpp"
#include "proxy/first_difference.hpp"
#include "proxy/loss_history.hpp"
#include "proxy/metrics/observation.hpp"
#include "proxy/participant.hpp"
#include "proxy/readings.hpp"
#include "proxy/repairs.hpp"
#include "proxy/service_manager.hpp"
#include "proxy/tenure.hpp"
#include "proxy/timekeeper.hpp"

struct event;
struct event_base;

namespace crane::proxy {

/// The database is an old or a second copy: starting again does not help, rebuilding the replica does.
constexpr int kExitDisowned = 3;
/// Its database is damaged: the same.
constexpr int kExitDamaged = 4;

/// Before a domain that was lost so often in a row is started again: the first time at once, then ever later,
/// for ever. What is wrong may pass, or be put right.
uint64_t restart_pause_ns(size_t restarts_in_a_row);

class Craned {
  public:
    explicit Craned(Config config);
    ~Craned();
    Craned(const Craned&) = delete;
    Craned& operator=(const Craned&) = delete;

    /// Runs until stopped; the process's exit status.
    int run();

  private:
    void make_replica();
    void on_lost();
    void try_restart();
    void begin_stop(const std::string& why);
    void fatal(const std::string& reason);
    void reopen_logs();
    nlohmann::json handle(const nlohmann::json& request);
    nlohmann::json status();
    /// Not older than a moment.
    nlohmann::json recent_status();
    bool is_own(const nlohmann::json& request) const;
    nlohmann::json look();
    std::string doing() const;
    nlohmann::json order(const nlohmann::json& request);
    nlohmann::json remake();
    nlohmann::json note_audit(const nlohmann::json& request);
    nlohmann::json read_log(const nlohmann::json& request);
    void asked(const nlohmann::json& request, Readings::Reply reply);
    nlohmann::json hand_on(uint32_t replica, const nlohmann::json& request);
    nlohmann::json answer(const nlohmann::json& request) const;
    static nlohmann::json set_level(const nlohmann::json& request);
    std::string change_membership(const nlohmann::json& request);

    Config config_;
    event_base* base_;
    std::vector<event*> events_;
    event* restart_timer_ = nullptr;
    event* stop_timer_ = nullptr;
    Timekeeper timekeeper_;       ///< outlives the replicas: the cluster's clock runs on
    Repairs repairs_;             ///< and what is known of this one
    LossHistory losses_;          ///< of its server
    FirstDifference difference_;  ///< between its output and others'
    /// Else a checkpoint of many gigabytes would be read whole each time that the server is made anew.
    const std::shared_ptr<checkpoint::KnownSums> sums_ = std::make_shared<checkpoint::KnownSums>();
    Tenure tenure_;  ///< of the primary that it knows
    std::unique_ptr<ServiceManager> service_;
    std::unique_ptr<ControlServer> control_;
    std::unique_ptr<AdminServer> admin_;  ///< null: [admin] names no address
    std::unique_ptr<Participant> replica_;
    std::unique_ptr<Observation> observation_;  ///< null: [metrics] names no address
    std::unique_ptr<Readings> readings_;
    AuditNote audit_;
    nlohmann::json looked_;  ///< of recent_status()
    uint64_t looked_ns_ = 0;
    const int64_t started_s_ = time(nullptr);
    bool stopping_ = false;
    bool done_ = false;
    int exit_status_ = 0;
    uint64_t lost_ns_ = 0;
    uint64_t restart_at_ns_ = 0;
    uint64_t last_restart_ns_ = 0;
    size_t restarts_ = 0;
    size_t restarts_in_a_row_ = 0;  ///< none of which stayed up
    std::string given_up_;          ///< why there is no server now; empty: there is one, or soon
};

}  // namespace crane::proxy
