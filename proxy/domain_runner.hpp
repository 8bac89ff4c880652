// The life of the server domain on this replica: segment, start, handshake, end.
//
// It tells apart three ends: the server refuses to run under the shim (kRefused), it has ended by its own
// deed (every replica reaches the same end), and it was taken away (killed, crashed container): only the last
// is a failure of this replica, and only then is a new domain started and the log replayed.
//
// Starting and ending containers, and removing what they left, takes from a tenth of a second to many seconds
// of system calls that wait: a worker does it, and the event loop hears of it afterwards.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/domain_host.hpp"
#include "checkpoint/inventory.hpp"
#include "proxy/config.hpp"
#include "proxy/domain_link.hpp"
#include "proxy/domain_words.hpp"
#include "proxy/loss_history.hpp"
#include "proxy/segment.hpp"
#include "proxy/worker.hpp"

struct event;
struct event_base;

namespace crane::proxy {

enum class DomainState { kStarting, kAttached, kRefused, kExited, kLost };

class DomainRunner {
  public:
    using Changed = std::function<void()>;

    /// `woken`: the doorbell rang. `changed`: state() is another.
    DomainRunner(event_base* base, const Config& config, LossHistory& losses, std::function<void()> woken,
                 Changed changed);
    ~DomainRunner();
    DomainRunner(const DomainRunner&) = delete;
    DomainRunner& operator=(const DomainRunner&) = delete;

    /// Has the server started; a failure to do so is a state (kRefused), not an exception.
    void start();
    struct NextStart {
        uint64_t time_ns = 0;  ///< the cluster's, of the decision
        /// Keeps the files that the next server begins with; in the worker, and may throw. Null: nobody does.
        std::function<void(const checkpoint::DomainHost&)> keep;
        /// They are kept, or the error says why not; the server is started in either case.
        std::function<void(const std::string& error)> kept;
        bool unstarted = false;  ///< it was decided that it could not be started: nor is it here (kRefused)
    };
    /// The server has ended (kExited), and another one goes on with its files: kStarting, with another link.
    void start_next(NextStart next);
    /// Instead of start(): no server has been started here, and one has ended on the files in `archive`.
    void restore(const std::string& archive);
    /// The server goes on in the state of an image; what comes of it is told like of start(). `archive`: its
    /// files, `image`: the packed image, `mark`: see DomainLink::prepare_restored().
    struct Image {
        std::string archive;
        std::string image;
        DomainWords words;
        uint32_t mark = 0;
        std::string program;  ///< what it is to be made of here; "": whatever is there
    };
    void restore_image(const Image& image);
    /// What the server is made of on this host (inventory.hpp), when it was last looked at: at each start,
    /// and when somebody asks.
    const std::string& program() const { return program_; }
    /// `image`: the base image that it would be made of, or "".
    void look_at_program(const std::string& image, std::function<void()> done);
    /// The base image that servers are begun on from now on, its sum; "": this host's files.
    void set_image(const std::string& sum);
    const std::string& image() const { return image_; }
    /// Also when craned or the server is started again, unless its configuration has changes accepted.
    void set_first_image(const std::string& sum);
    /// This host has other files than the server is to be made of: it is not run here (kRefused).
    void refuse_program(const std::string& difference);
    /// It could not be started (kRefused), which counts as its end, with the status that a shell has for it.
    void end_unstarted();
    bool program_refused() const { return program_refused_; }

    /// The image that was to be used is of no use; said once, in kLost.
    bool image_refused() const { return image_refused_; }
    struct ImagePlace {
        std::string archive;  ///< the file for the server's files
        std::string image;    ///< and that for the image
        /// Throws when there is no room for it any more; called in the worker, all the time that it takes.
        checkpoint::Check check;
    };
    /// What is left to be done of an image that was taken: to be called in a worker, once; throws what is
    /// wrong.
    using Pack = std::function<void()>;
    /// Takes an image of the server, which stands still meanwhile. `place` is called in the worker, and may
    /// throw. `done`: it runs on, with what is left to be done, or why no image could be taken. Not to be
    /// called again before, nor before `Pack` is gone.
    void take_image(std::function<ImagePlace()> place,
                    std::function<void(const std::string& error, Pack pack)> done);
    /// Has the domain ended. The log holds all that matters, so what it still says is not listened to.
    void kill();
    /// It cannot be trusted any more: kill(), and another one is wanted.
    void give_up(const std::string& why);
    /// kill() was called.
    bool killed() const { return killed_; }
    /// Nothing of the domain is being started or ended any more: this can be destroyed without waiting.
    bool settled() const { return !worker_.busy(); }
    /// The shim gave up, because the domain was hurt: ends what is left of it.
    void check_damage(uint64_t admitted);
    /// What it says makes no sense any more. It is made anew from the log (kLost); but if it comes to that
    /// each time behind the same entry, the last one that it `admitted`, it is the server's own deed
    /// (kExited).
    void lose_damaged(uint64_t admitted, const std::string& why);
    /// In kExited: so, and nothing that it still says counts.
    bool damaged() const { return damaged_; }
    /// The output said that the main process ends by its own deed.
    void main_exited(int32_t status);
    /// It was decided that the server ends where it stands now, and all it has said is drained.
    void end_where_it_stands();

    DomainState state() const { return state_; }
    const std::string& message() const { return message_; }
    /// In kExited: how, as waitpid gives it.
    int32_t end_status() const { return end_status_; }
    /// Of the server that there is now; start_next() makes it another.
    DomainLink& link() { return *link_; }
    const DomainLink& link() const { return *link_; }
    void trim_output() const { host_->trim_output(); }
    /// What of the confinement this host cannot give.
    const std::vector<std::string>& weaknesses() const { return weaknesses_; }
    pid_t init_pid() const { return init_pid_; }  ///< 0: there is none
    /// The process is gone: what is in the output ring is all there will be.
    bool gone() const { return gone_; }

  private:
    static void on_doorbell(int fd, short what, void* self);
    static void on_poll(int fd, short what, void* self);
    static void on_exit(int fd, short what, void* self);
    struct Started;
    struct Interval;
    void make_link(uint64_t files_since_ns);
    void replace_link();
    void end_processes(checkpoint::Files files);
    using Bring = std::function<void(checkpoint::DomainHost&)>;
    void launch(const Bring& bring, const std::string* image_program = nullptr);
    void started(const Started& result, bool attached);
    void poll_attachment();
    bool ended_by_its_own_deed(const checkpoint::ExitReport& report);
    void domain_gone(std::optional<checkpoint::ExitReport> report);
    void forget_exit_fd();
    void enter(DomainState state, std::string message);

    event_base* base_;
    const Config& config_;
    LossHistory& losses_;
    std::function<void()> woken_;
    Changed changed_;
    Segment segment_;
    std::unique_ptr<DomainLink> link_;
    std::shared_ptr<checkpoint::DomainHost> host_;  ///< used by the worker alone
    Worker worker_;
    DomainState state_ = DomainState::kStarting;
    std::string message_;
    uint64_t started_ns_ = 0;
    int32_t end_status_ = 0;
    bool damaged_ = false;
    uint64_t files_since_ns_ = 0;  ///< as the server said it before it could do harm
    uint64_t launches_ = 0;        ///< what a worker says of an earlier one is not listened to
    pid_t init_pid_ = 0;
    bool gone_ = false;       ///< the processes, or what would start them
    bool says_more_ = false;  ///< they are gone, and not all that they have said is drained
    std::optional<checkpoint::ExitReport> gone_how_;
    bool killed_ = false;
    bool image_refused_ = false;
    std::string program_;
    std::string program_trouble_;  ///< why it could not be told the last time
    bool program_refused_ = false;
    std::string image_;
    std::shared_ptr<checkpoint::Inventory> inventory_;  ///< used by the worker alone
    std::vector<std::string> weaknesses_;
    int exit_fd_ = -1;  ///< of our own
    event* doorbell_event_ = nullptr;
    event* poll_event_ = nullptr;
    event* exit_event_ = nullptr;
};

/// "exited with status 3", "was killed by signal 9 (Killed)".
std::string wait_status_text(int32_t status);

}  // namespace crane::proxy
