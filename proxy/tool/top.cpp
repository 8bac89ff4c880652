// crane top: all replicas of a cluster, live on a terminal. The frame is top_frame.cpp's; here is the
// terminal, by the sequences that every terminal since the VT100 knows.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/clock.hpp"
#include "proxy/tool/tools.hpp"
#include "proxy/tool/top_frame.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

constexpr int kPatienceMs = 1000;  // with a replica that does not answer
constexpr size_t kPlainWidth = 132, kPlainHeight = 1000;

volatile sig_atomic_t ended = 0;

void note_end(int) {
    ended = 1;
}

json ask_each(const std::string& state_dir) {
    json rows = json::array();
    for (const ReplicaDir& one : whole_cluster(state_dir)) {
        json row;
        try {
            row = ask_replica(one, {{"cmd", "status"}}, kPatienceMs);
        } catch (const std::runtime_error& error) {
            row = {{"error", error.what()}};
        }
        row["alive"] = row.contains("role");
        if (!row["alive"]) row["role"] = "down";
        if (!row.contains("replica")) row["replica"] = one.id;
        row["asked_s"] = time(nullptr);
        rows.push_back(std::move(row));
    }
    return rows;
}

void put(const std::string& bytes) {
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t got = write(STDOUT_FILENO, bytes.data() + done, bytes.size() - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            throw std::runtime_error(std::string("cannot write to the terminal: ") + strerror(errno));
        done += static_cast<size_t>(got);
    }
}

/// As it was again with this object's end.
class Screen {
  public:
    Screen() {
        if (tcgetattr(STDIN_FILENO, &before_) != 0)
            throw std::runtime_error(std::string("cannot set up the terminal: ") + strerror(errno));
        termios raw = before_;
        raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // keys at once, Ctrl-C still a signal
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
        put("\x1b[?1049h\x1b[?25l");  // a screen of its own, no cursor
    }
    ~Screen() {
        const char back[] = "\x1b[0m\x1b[?25h\x1b[?1049l";
        if (write(STDOUT_FILENO, back, sizeof(back) - 1) < 0) {
        }
        tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    }
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;

    void draw(const TopSample& before, const TopSample& now) const {
        winsize size{};
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
            size = {24, 80, 0, 0};
        std::string out = "\x1b[H";
        bool first = true;
        for (const TopLine& line : top_frame(before, now, size.ws_col, size.ws_row)) {
            using Style = TopLine::Style;
            const char* style = line.style == Style::kHead  ? "\x1b[1m"
                                : line.style == Style::kBad ? "\x1b[31m"
                                                            : "";
            out += (first ? "" : "\r\n") + std::string(style) + line.text + "\x1b[0m\x1b[K";
            first = false;
        }
        put(out + "\x1b[J");
    }

  private:
    termios before_{};
};

/// False: to be ended. Returns early, true, when the window has another size.
bool wait_for_key(int timeout_ms, const sigset_t& open_mask, bool& resized) {
    pollfd keys{STDIN_FILENO, POLLIN, 0};
    const timespec limit{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
    const int ready = ppoll(&keys, 1, &limit, &open_mask);
    resized = ready < 0 && errno == EINTR;
    if (ended) return false;
    if (ready <= 0) return true;
    char key = 'q';  // at the end of what there is to read, too
    if (read(STDIN_FILENO, &key, 1) <= 0) return false;
    return key != 'q' && key != 'Q';
}

void check_terminal() {
    const char* const term = getenv("TERM");
    const bool dumb = term == nullptr || *term == 0 || strcmp(term, "dumb") == 0;
    if (!dumb && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) return;
    throw std::runtime_error(
        std::string("crane top redraws a terminal, and this is none that can be redrawn (") +
        (dumb ? "TERM is not set, or dumb" : "input or output is no terminal") +
        "): crane top --once prints one frame");
}

}  // namespace

int tool_top(const std::string& state_dir, const TopRequest& request, bool as_json) {
    const int every_ms = static_cast<int>(request.every_s) * 1000;
    if (!request.once) check_terminal();
    json before = ask_each(state_dir);
    uint64_t before_ns = monotonic_ns();
    if (request.once) {
        usleep(static_cast<useconds_t>(every_ms) * 1000);
        const json now = ask_each(state_dir);
        if (as_json) {
            put(now.dump() + "\n");
            return kExitOk;
        }
        for (const TopLine& line :
             top_frame({before, before_ns}, {now, monotonic_ns()}, kPlainWidth, kPlainHeight))
            put(line.text + "\n");
        return kExitOk;
    }
    sigset_t held, open_mask;
    sigemptyset(&held);
    struct sigaction action {};
    action.sa_handler = note_end;
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) {
        sigaddset(&held, number);
        if (number == SIGWINCH) action.sa_handler = [](int) {};
        sigaction(number, &action, nullptr);
    }
    sigprocmask(SIG_BLOCK, &held, &open_mask);
    const Screen screen;
    json now = before;
    uint64_t now_ns = before_ns;
    for (;;) {
        screen.draw({before, before_ns}, {now, now_ns});
        const uint64_t next_ns = now_ns + static_cast<uint64_t>(every_ms) * 1'000'000;
        const uint64_t clock_ns = monotonic_ns();
        bool resized = false;
        const int left_ms = next_ns > clock_ns ? static_cast<int>((next_ns - clock_ns) / 1'000'000) : 0;
        if (!wait_for_key(left_ms, open_mask, resized)) return kExitOk;
        if (resized) continue;
        before = std::move(now);
        before_ns = now_ns;
        now = ask_each(state_dir);
        now_ns = monotonic_ns();
    }
}

}  // namespace crane::proxy
