// One replica, from the start of its domain to the domain's end: binds domain, log and clients.
//
// The loop's owner calls turn() again and again, each time before it sleeps. All work that a turn's events
// have gathered happens there, in this order, so that each batch, message and write carries everything that
// came together:
//   output ring -> output log, clients   |   clients' writes   |   calls -> batch -> log   |   words for
//   peers
// Decided batches go into the input ring as they come; when it is full, delivery is paused and they stay on
// disk.
//
// Files: replica.cpp (start, turn, end, what others say), replica_sequence.cpp (decided batches, roles),
// replica_proposals.cpp, replica_output.cpp (of the domain), replica_watch.cpp (what is looked at regularly),
// replica_restart.cpp, replica_base.cpp, replica_program.cpp, replica_standstill.cpp, replica_checkpoint.cpp,
// replica_image.cpp, replica_clients.cpp, replica_egress.cpp, replica_clock.cpp, replica_fitness.cpp,
// replica_operator.cpp, replica_status.cpp.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>

#include "base/clock.hpp"
#include "proxy/attached_clients.hpp"
#include "proxy/batcher.hpp"
#include "proxy/bubbles.hpp"
#include "proxy/carrier.hpp"
#include "proxy/catching_up.hpp"
#include "proxy/checkpoint_shipping.hpp"
#include "proxy/checkpoints.hpp"
#include "proxy/client_connection.hpp"
#include "proxy/client_limit.hpp"
#include "proxy/config.hpp"
#include "proxy/connection_table.hpp"
#include "proxy/datagrams.hpp"
#include "proxy/disk_watch.hpp"
#include "proxy/divergence.hpp"
#include "proxy/domain_account.hpp"
#include "proxy/domain_cores.hpp"
#include "proxy/domain_runner.hpp"
#include "proxy/egress.hpp"
#include "proxy/egress_datagrams.hpp"
#include "proxy/egress_dialer.hpp"
#include "proxy/first_difference.hpp"
#include "proxy/frozen_detector.hpp"
#include "proxy/image_files.hpp"
#include "proxy/image_rounds.hpp"
#include "proxy/ingress.hpp"
#include "proxy/input_first.hpp"
#include "proxy/listeners.hpp"
#include "proxy/loop_lag.hpp"
#include "proxy/metrics/alarm.hpp"
#include "proxy/native_backend.hpp"
#include "proxy/operator_mail.hpp"
#include "proxy/output_log.hpp"
#include "proxy/output_tail.hpp"
#include "proxy/pace.hpp"
#include "proxy/participant.hpp"
#include "proxy/repairs.hpp"
#include "proxy/restart_policy.hpp"
#include "proxy/sequencer.hpp"
#include "proxy/server_ends.hpp"
#include "proxy/session_share.hpp"
#include "proxy/stall_detector.hpp"
#include "proxy/standing.hpp"
#include "proxy/standstill.hpp"
#include "proxy/timekeeper.hpp"
#include "proxy/unstarted.hpp"

struct event;
struct event_base;

namespace crane::proxy {

class Replica : public Participant {
  public:
    Replica(event_base* base, const Config& config, Timekeeper& timekeeper, Repairs& repairs,
            LossHistory& losses, FirstDifference& difference,
            const std::shared_ptr<checkpoint::KnownSums>& sums, Events events);
    ~Replica() override;

    void start() override;
    bool turn() override;
    void awake() override { domain_.link().awake(); }
    void stop(std::function<void()> done) override;

    nlohmann::json status() const override;
    void flush_log() override;
    void reopen_logs() override { log_.reopen(); }
    bool leads() const override { return sequencer_.leads(); }
    uint32_t leader() const override { return sequencer_.leader(); }
    bool settled() const override { return domain_.settled() && !checkpoints_.keeping(); }
    bool disowned() const override { return sequencer_.disowned(); }
    paxos::TlsStanding tls_standing() const override { return sequencer_.tls_standing(); }
    bool alone() const override { return config_.replicas.size() == 1; }
    void hand_over() override { sequencer_.transfer(0); }
    OperatorMail& mail() override { return mail_; }
    std::vector<paxos::Entry> read_decided(uint64_t first) override { return sequencer_.read_decided(first); }

    std::string transfer(uint32_t to) override;
    std::string signal_server(uint32_t signal) override;
    std::string restart_server(const std::optional<std::string>& image,
                               std::optional<uint32_t> within_s) override;
    bool fetches_image() const override { return image_shipping_.wanted() != 0; }
    bool begins_server() const override;
    std::string take_checkpoint() override;
    std::string remake_server() override;
    std::string choose_base(uint32_t replica) override;
    std::string change_membership(const paxos::MembershipChange& change) override;

  private:
    std::string not_primary() const;
    void on_batch(uint64_t index, const std::shared_ptr<const std::string>& batch);
    void on_ready();
    void on_role();
    void on_message(uint32_t from, const std::string& message);
    void on_report(uint32_t from, const std::string& report);
    std::string make_report() const;
    void on_datagrams(int fd, uint16_t port);
    bool send_datagram(const timebubble::DatagramPayload& client, std::string_view bytes);
    Egress::Ways egress_ways();
    EgressDialer::Outcomes dial_outcomes();
    void on_egress_connected(uint64_t id, int fd);
    bool send_outward(const timebubble::DatagramRecord& to, std::string_view bytes);
    void end_egress();
    void on_accepted(int fd, uint16_t port, Listeners::Place place);
    void on_output(const timebubble::OutputHeader& header, std::string_view payload);
    void on_port(const timebubble::OutputHeader& header, std::string_view payload);
    void on_admitted(const timebubble::OutputHeader& header, std::string_view payload);
    void on_domain_changed();
    void domain_overwrote(const std::string& what);
    void drain();
    bool feed_domain(uint64_t index, const std::string& batch);
    void feed();
    struct Pending {
        uint64_t index;
        std::shared_ptr<const std::string> batch;
    };
    bool begin_server(const Pending& batch, uint64_t generation, uint64_t timestamp_ns);
    void start_from_checkpoint();
    void lack_checkpoint(uint64_t index);
    void on_lack(std::string_view said);
    void tell_lacking();
    bool ship(uint32_t to, char letter, const std::string& message);
    void fetch_image(const std::string& sum);
    void on_image_fetched();
    void on_fetched(uint64_t index);
    void note_checkpoint(uint64_t generation, const std::string& batch);
    DomainRunner::NextStart next_start(uint64_t generation, uint64_t timestamp_ns);
    void ask_for_images(uint64_t now_ns);
    void on_turn_for_image(std::string_view said);
    void want_image(uint64_t first_index);
    void look_for_image();
    bool clients_have_copies();
    bool stands_for_image(uint64_t wanted_ns) const;
    bool is_at_image() const;
    void tell_at_image(uint64_t now_ns);
    void forget_image();
    void image_failed(uint32_t whose);
    void begin_image();
    void pack_image(const CheckpointState& state, DomainRunner::Pack pack);
    void start_from_image();
    void open_ports();
    void close_ports();
    bool replays_before(uint64_t checkpoint) const;
    bool will_begin_anew() const;
    bool shim_is_another() const;
    void fetch_to_keep();
    void ask_for_new_image(uint64_t now_ns);
    void look_for_missed_end();
    void fence_for_missed_end();
    void watch_missed_end(uint64_t now_ns);
    std::vector<uint32_t> servers() const;
    ServerEnd own_end() const;
    void tell_ends();
    void on_refused();
    bool decided_unstarted(uint64_t generation) const;
    UnstartedStep look_at_unstarted() const;
    uint32_t older_peer() const;
    bool kept_unstarted() const;
    bool watch_unstarted();
    bool begin_from_others(uint64_t index);
    void watch_restored(uint64_t now_ns);
    void watch_begin_from_others(uint64_t now_ns);
    void watch_refusal(uint64_t now_ns);
    void on_server_ended(int32_t status);
    bool ended_alone(uint64_t now_ns) const;
    bool end_is_agreed() const;
    void watch_server_end(uint64_t now_ns);
    void note_base(uint64_t index, uint32_t replica);
    bool is_base() const { return decided_base_.replica == config_.replica_id; }
    /// Not everybody has begun from the base yet, as far as is known here.
    bool base_awaited() const { return decided_base_.index > sequencer_.common_checkpoint(); }
    std::string why_no_base(uint32_t replica) const;
    void watch_base(uint64_t now_ns);
    void note_program(timebubble::BatchDecoder decoder);
    bool program_fits();
    void watch_program(uint64_t now_ns);
    void use_image(const std::string& sum);
    bool program_is_news() const;
    std::string program_difference() const;
    void propose_start();
    void propose_next_server(Place end);
    /// By this primary, and not yet decided: nothing that follows is for the server that there is.
    bool next_proposed() const { return generation_.proposed > generation_.decided; }
    void look_ahead();
    void note_end(const timebubble::StartPayload& start);
    void end_where_decided();
    void make_anew_before_end();
    void watch_standstill(uint64_t now_ns);
    void lead_standstill(uint64_t now_ns);
    void tell_to_stand();
    void on_stand_word(uint32_t from, std::string_view said);
    void on_stand_answer(uint32_t from, std::string_view said);
    void propose();
    void await_group();
    uint64_t held_up_ns() const;
    void propose_batch(uint64_t calls);
    void on_link(uint32_t peer, bool up);
    bool own_domain_is_behind() const;
    bool own_domain_stands() const;
    void choose_output();
    size_t clients_descriptors() const;
    void settle_connections();
    void send_queries();
    void tell_findings();
    void ask_for_sides(uint64_t index);
    void tell_side(uint64_t index);
    void on_side(uint32_t from, std::string_view said);
    void tell_the_odd();
    void tell_standing();
    void on_standing(uint32_t from, std::string_view said);
    /// This replica differs from the majority, first seen at log index `index`.
    void fence(const std::string& why, uint64_t index);
    void make_anew_from(uint64_t index);
    void on_finding(std::string_view said);
    void watch_trial();
    void watch_disk();
    void judge_fitness();
    bool without_server() const;
    std::string why_no_restart() const;
    bool serves() const { return !stopping_ && !server_ended_ && fenced_.empty() && !repairs_.on_trial(); }
    nlohmann::json listen_json() const;
    nlohmann::json domain_json() const;
    nlohmann::json counters_json() const;
    nlohmann::json loop_json() const;
    std::string message() const;
    Alarms alarms() const;
    bool has_server(const paxos::Member& member) const { return witnesses_.count(member.id) == 0; }
    void on_membership(const paxos::MembershipAt& decided);
    void compare_with_servers(const paxos::Membership& membership);
    void housekeep();
    void watch_catching_up();
    void begin_time();
    void tell_time();
    void on_leader_time(std::string_view said);
    void watch_clocks(uint64_t now_ns);
    void hand_over_for_clock(uint64_t now_ns);
    HostTime host_time() const { return {boottime_ns(), realtime_ns()}; }
    void watch(uint64_t now_ns);
    void look_at_domain(uint64_t stood_s);
    void look_for_round();
    uint64_t under_way() const;
    bool may_propose() const;
    uint64_t late_ns();
    bool has_to_look_first();
    nlohmann::json clock_json() const;
    void track_connections(uint64_t index, const std::string& batch);
    const char* server_state() const;

    event_base* base_;
    const Config& config_;
    Timekeeper& timekeeper_;
    Repairs& repairs_;
    FirstDifference& difference_;
    Events events_;
    uint64_t settings_hash_;
    DomainRunner domain_;
    Checkpoints checkpoints_;
    OutputLog log_;
    Batcher batcher_;
    Bubbles bubbles_;
    InputFirst input_first_;
    bool looks_first_ = false;  ///< nothing is proposed before the loop has looked at clients once more
    DomainAccount account_;
    ClientPool pool_;
    ServerPorts ports_;
    AttachedClients clients_;
    Carrier carrier_;
    Ingress ingress_;
    OperatorMail mail_;
    Listeners listeners_;
    Sequencer sequencer_;
    Datagrams datagrams_;
    EgressDialer dialer_;
    Egress egress_;
    EgressDatagrams egress_datagrams_;
    CheckpointShipping shipping_;
    std::shared_ptr<ImageFiles> images_;
    CheckpointShipping image_shipping_;
    std::unique_ptr<NativeBackend> native_;

    std::deque<Pending> pending_;  ///< decided, no room in the ring yet
    bool delivery_paused_ = true;
    std::set<uint32_t> peers_up_;
    std::set<uint32_t> witnesses_;  ///< as they said themselves
    AdmissionHistory history_;
    DivergenceCheck divergence_;
    OutputTail tail_;
    StallDetector stall_;
    std::string stall_message_;
    std::unique_ptr<Worker> look_;  ///< the latest one into the domain
    StallDetector rounds_;          ///< of one that may wait for another thread of its own
    bool round_is_due_ = false;     ///< a look at that
    std::unique_ptr<Worker> round_look_;
    LoopLag lag_;
    SessionShare share_;
    FrozenDetector frozen_;
    std::unique_ptr<DomainCores> cores_;  ///< null: the system places the server's threads
    DiskWatch disk_;
    std::optional<Admission> leaders_word_;  ///< what this replica's output is to be compared with
    std::string fenced_;  ///< why this replica serves nobody and may not lead; empty: it may
    bool fit_to_lead_ = true;
    std::set<uint32_t> schedule_told_;  ///< of which replicas it was said that their schedule differs
    ClientLimit client_limit_;
    Standing standing_;
    Pace pace_;
    CatchingUp catching_up_;
    std::set<uint32_t> settings_differ_;
    event* housekeeping_ = nullptr;
    event* flush_timer_ = nullptr;
    event* group_timer_ = nullptr;  ///< set while calls wait for the batch before them to be decided
    event* disk_timer_ = nullptr;   ///< of looks between those of the housekeeping
    bool flush_armed_ = false;
    bool group_armed_ = false;
    bool more_output_ = false;
    bool output_held_ = false;  ///< in the ring, until the log has taken what came before
    enum class ImagePhase { kNone, kWanted, kTaking };
    struct {
        ImagePhase phase = ImagePhase::kNone;
        uint64_t since_ns = 0;
        uint64_t unadmitted = 0;  ///< the fewest seen since it is wanted
        bool copied = false;      ///< clients here have the primary's copy of the output, as far as they can
        uint64_t copies_ns = 0;   ///< since when that is wanted; 0: not yet
        uint64_t copies_looked_ns = 0;
        uint64_t first_index = 0;  ///< it is to stand there or behind
        uint64_t told_ns = 0;      ///< when the primary last heard that one is being taken
        uint64_t looked_ns = 0;    ///< when this one's server was last asked how long it has computed
        bool packing = false;      ///< one was taken, and the server has gone on
        uint64_t next_index = 0;   ///< so far behind is the next one that is wanted then; 0: none is
    } image_;                      ///< of the server, by this replica
    ImageRounds image_rounds_;
    bool ports_open_ = false;  ///< once it is known to go on from where it began
    bool lacking_ = false;     ///< without a checkpoint from others this replica has no server
    struct {
        uint64_t index = 0;  ///< since this entry; 0: none was decided, as far as the log goes here
        uint32_t replica = 0;
        uint64_t asked_ns = 0;     ///< for its checkpoint, on that replica
    } decided_base_;               ///< whose state counts, as was decided
    uint64_t from_others_ns_ = 0;  ///< since when a checkpoint of theirs is waited for; 0: none is
    uint64_t asked_for_image_ns_ = 0;
    uint64_t stands_restored_ns_ = 0;  ///< since when its restored server has not run at all; 0: it does
    uint64_t last_batch_index_ = 0;
    uint64_t lead_index_ = 0;     ///< the last entry decided before this replica led
    uint64_t lead_since_ns_ = 0;  ///< and since when
    bool stopping_ = false;
    bool server_ended_ = false;  ///< and the next one is not begun
    bool unstarted_ = false;     ///< it has ended, as it could not be started here
    Standstill standstill_;
    /// Where servers are ended by decision, by their numbers.
    std::map<uint64_t, Place> ends_;
    uint64_t ended_generation_ = 0;  ///< the last server that was ended so
    uint64_t asked_clock_ = 0;       ///< where the server was when the operator wanted another one
    uint64_t ahead_index_ = 1;       ///< the first entry that was not looked at for such an end
    uint64_t ahead_generation_ = 1;  ///< the last server that is begun before it
    bool looked_ahead_ = false;      ///< as far as was decided when this replica began
    /// What servers are made of, by their numbers, as the log says; of the one that is fed and later ones.
    std::map<uint64_t, std::string> programs_;
    struct {
        uint64_t compared = 0;  ///< the server that was found to be made of what it should
        uint64_t looked = 0;    ///< for this one's sake the host was looked at last
        bool looking = false;
        bool delivering = false;   ///< more that is decided may come at once
        bool proposed = false;     ///< by this primary, for the server that there is
        bool begins_anew = false;  ///< on other files: what there is of this server says nothing any more
        uint64_t refused_ns = 0;
        uint64_t log_end = 0;                     ///< of this replica's log when it began
        std::string image;                        ///< what the image is of that was begun from
        uint64_t fetch_ns = 0;                    ///< an image was wanted
        std::optional<std::string> wanted_image;  ///< by the operator, for the next server: its base image
    } program_;
    RestartPolicy restarts_;
    /// Numbers of servers, as the log counts them.
    struct Generation {
        uint64_t decided = 1;
        uint64_t fed = 1;          ///< the one that the domain is, or was
        uint64_t starting = 0;     ///< its domain is being made; 0: none is
        uint64_t starting_ns = 0;  ///< when that was decided
        uint64_t proposed = 0;     ///< by this primary
        uint64_t fed_time_ns = 0;  ///< of the last batch that the domain was given
        bool used = false;         ///< of the one that is decided: calls were decided for it
        /// The one whose beginning this replica is at.
        uint64_t begun() const { return starting != 0 ? starting : fed; }
    };
    Generation generation_;
    ServerEnds ends_known_;   ///< as the others say, or the leader says of them
    bool ends_told_ = false;  ///< to the others, by this leader
    uint64_t server_ends_ = 0;
    uint64_t server_ended_ns_ = 0;
    uint64_t missed_end_ns_ = 0;  ///< since when it stands where the others have ended; 0: it does not
    uint64_t refused_ns_ = 0;
    uint64_t unstarted_ns_ = 0;  ///< when it was last tried to start the server that could not be
    uint64_t stop_at_ns_ = 0;    ///< a server that was asked to end and has not, is ended then; 0: none was
    std::string last_end_;
    uint64_t output_records_ = 0;
    uint64_t batches_proposed_ = 0;
    uint64_t calls_proposed_ = 0;
    uint64_t last_query_ns_ = 0;
    uint64_t last_step_down_ns_ = 0;
    std::string server_message_;
    uint64_t server_messages_ = 0;
    std::string clock_alarm_;
    uint64_t clock_alarm_ns_ = 0;  ///< when it was last written to the log
    uint64_t told_time_ns_ = 0;
    uint64_t last_clock_hand_over_ns_ = 0;
};

/// The server that a batch begins; its number is 0: it begins none.
timebubble::StartPayload started_server(timebubble::BatchDecoder decoder);

}  // namespace crane::proxy
