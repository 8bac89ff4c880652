// crane log: the decided sequence, for people and programs. A replica that runs holds its database's lock, so
// what is read is then a copy, recovered as after a crash; the replica itself is not touched.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "paxos/core/describe.hpp"
#include "paxos/store/store.hpp"
#include "proxy/client_connection.hpp"
#include "proxy/tool/compare.hpp"
#include "proxy/tool/tools.hpp"
#include "timebubble/batch.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using nlohmann::json;
using timebubble::Call;
using timebubble::CallKind;

namespace {

constexpr size_t kExcerptBytes = 60;
constexpr int kCopyTries = 5;
constexpr size_t kOpenLogFiles = 2;  // of the newest, opening a copy may change

const char* call_name(CallKind kind) {
    switch (kind) {
        case CallKind::kGenesis:
            return "genesis";
        case CallKind::kConnect:
            return "connect";
        case CallKind::kSend:
            return "send";
        case CallKind::kShutdown:
            return "shutdown";
        case CallKind::kReset:
            return "reset";
        case CallKind::kWindow:
            return "window";
        case CallKind::kSignal:
            return "signal";
        case CallKind::kStart:
            return "start";
        case CallKind::kStop:
            return "stop";
        case CallKind::kProgram:
            return "program";
        case CallKind::kDatagram:
            return "datagram";
    }
    return "unknown";
}

uint64_t number_in(std::string_view payload) {
    uint64_t out = 0;
    memcpy(&out, payload.data(), std::min(payload.size(), sizeof(out)));
    return out;
}

std::string excerpt(std::string_view bytes) {
    return std::to_string(bytes.size()) + " bytes: \"" + printable(bytes.substr(0, kExcerptBytes)) +
           (bytes.size() > kExcerptBytes ? "…\"" : "\"");
}

/// What the call carries, in words. The genesis is a secret and is not shown.
std::string call_detail(const Call& call) {
    if (call.kind == CallKind::kConnect && call.payload.size() == sizeof(timebubble::ConnectPayload)) {
        timebubble::ConnectPayload from;
        memcpy(&from, call.payload.data(), sizeof(from));
        return "from " + address_text(from.family, from.peer, from.peer_port) + " to port " +
               std::to_string(from.listen_port);
    }
    if (call.kind == CallKind::kSend) return excerpt(call.payload);
    if (call.kind == CallKind::kDatagram && call.payload.size() >= sizeof(timebubble::DatagramPayload)) {
        timebubble::DatagramPayload from;
        memcpy(&from, call.payload.data(), sizeof(from));
        return "from " + address_text(from.family, from.peer, from.peer_port) + " to port " +
               std::to_string(from.port) + ", " + excerpt(call.payload.substr(sizeof(from)));
    }
    if (call.kind == CallKind::kWindow) return "up to byte " + std::to_string(number_in(call.payload));
    if (call.kind == CallKind::kProgram)
        return "of server " + std::to_string(number_in(call.payload)) + ": " +
               std::to_string(std::count(call.payload.begin(), call.payload.end(), '\n')) + " files";
    if (call.kind == CallKind::kSignal) return std::to_string(number_in(call.payload));
    return "";
}

std::string time_text(uint64_t ns) {
    const time_t seconds = static_cast<time_t>(ns / 1'000'000'000);
    tm parts{};
    gmtime_r(&seconds, &parts);
    char text[64];
    const size_t end = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + end, sizeof(text) - end, ".%09luZ", ns % 1'000'000'000);
    return text;
}

json entry_json(const paxos::Entry& entry) {
    json out = {{"index", entry.index}, {"view", paxos::view_name(entry.view)}};
    if (entry.kind != paxos::EntryKind::kValue) {
        const std::map<paxos::EntryKind, const char*> names = {{paxos::EntryKind::kNewView, "new-view"},
                                                               {paxos::EntryKind::kReturn, "return"},
                                                               {paxos::EntryKind::kMembership, "members"},
                                                               {paxos::EntryKind::kStart, "start"}};
        out["kind"] = names.at(entry.kind);
        if (entry.kind != paxos::EntryKind::kNewView) out["detail"] = paxos::describe_value(entry);
        return out;
    }
    timebubble::BatchDecoder batch;
    if (!batch.open(reinterpret_cast<const uint8_t*>(entry.value->data()), entry.value->size())) {
        out["kind"] = "damaged";
        return out;
    }
    out["kind"] = batch.header().calls == 0 ? "bubble" : "batch";
    out["time"] = time_text(batch.header().timestamp_ns);
    out["timestamp_ns"] = batch.header().timestamp_ns;
    out["grant_clocks"] = batch.header().grant_clocks;
    out["calls"] = json::array();
    for (Call call; batch.next(call);) {
        json one = {
            {"call", call_name(call.kind)}, {"bytes", call.payload.size()}, {"detail", call_detail(call)}};
        if (call.connection != 0) {
            char id[20];
            snprintf(id, sizeof(id), "%lx", call.connection);
            one["connection"] = id;
        }
        out["calls"].push_back(std::move(one));
    }
    return out;
}

void print_entry(const json& entry) {
    std::cout << "#" << entry["index"] << " view " << entry["view"].get<std::string>() << " "
              << entry["kind"].get<std::string>();
    if (entry.contains("time")) {
        std::cout << " " << entry["time"].get<std::string>() << " grant " << entry["grant_clocks"];
    }
    if (entry.contains("detail")) std::cout << " " << entry["detail"].get<std::string>();
    std::cout << "\n";
    for (const json& call : entry.value("calls", json::array())) {
        std::cout << "    " << call["call"].get<std::string>();
        if (call.contains("connection")) std::cout << " " << call["connection"].get<std::string>();
        std::cout << " " << call["detail"].get<std::string>() << "\n";
    }
}

/// What a signal that ends this program has to remove first: the path of the copy, empty if there is none.
char copy_to_remove[64];

/// Ctrl-C, a closed terminal, kill. What removing takes (a walk, memory) is not for a handler: a child does
/// it, which execs at once.
void remove_copy_and_end(int number) {
    if (copy_to_remove[0] != 0 && vfork() == 0) {
        execl("/bin/rm", "rm", "-rf", copy_to_remove, nullptr);
        _exit(127);
    }
    signal(number, SIG_DFL);
    raise(number);
}

/// A private copy of a live database, as far as it changes; removed with the object, or by the signal that
/// ends this program.
class Copy {
  public:
    explicit Copy(const std::string& db) {
        for (const int number : {SIGINT, SIGTERM, SIGHUP})
            if (signal(number, remove_copy_and_end) == SIG_IGN) signal(number, SIG_IGN);
        char name[] = "/tmp/crane-log-XXXXXX";
        if (!mkdtemp(name))
            throw std::runtime_error(std::string("cannot make a directory in /tmp: ") + strerror(errno));
        path_ = name;
        strncpy(copy_to_remove, name, sizeof(copy_to_remove) - 1);
        copy(fs::path(db) / "log.db");
        // Data before log: what the data lacks is then in the log. Of that only the end is written to.
        std::vector<fs::path> logs;
        for (const auto& entry : fs::directory_iterator(db))
            if (entry.path().filename().string().starts_with("log.0")) logs.push_back(entry.path());
        std::sort(logs.begin(), logs.end());
        for (size_t i = 0; i < logs.size(); ++i) {
            if (i + kOpenLogFiles < logs.size())
                fs::create_symlink(fs::absolute(logs[i]), fs::path(path_) / logs[i].filename());
            else
                copy(logs[i]);
        }
    }
    ~Copy() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
        copy_to_remove[0] = 0;
    }
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;
    const std::string& path() const { return path_; }

  private:
    void copy(const fs::path& file) {
        std::error_code gone;  // a log file may be removed meanwhile; the next try sees the new set
        fs::copy_file(file, fs::path(path_) / file.filename(), gone);
    }

    std::string path_;
};

std::vector<json> read_entries(const std::string& db, const LogRequest& request, bool live,
                               uint64_t& commit) {
    for (int tries = 1;; ++tries) {
        std::vector<json> out;
        const auto visit = [&](const paxos::Entry& entry) {
            if (entry.index > request.to) return false;
            out.push_back(entry_json(entry));
            return true;
        };
        try {
            if (live) {
                const Copy copy(db);
                commit = paxos::read_offline(copy.path(), request.from, visit).state.commit;
            } else {
                commit = paxos::read_offline(db, request.from, visit).state.commit;
            }
            return out;
        } catch (const paxos::StorageError&) {
            if (!live || tries == kCopyTries) throw;
        }
    }
}

}  // namespace

int tool_log(const std::string& state_dir, const LogRequest& request, bool as_json) {
    for (const ReplicaDir& replica : find_replicas(state_dir)) {
        if (request.replica != 0 && replica.id != request.replica) continue;
        const std::string db = replica.path + "/db";
        if (!fs::exists(db) && request.replica == 0) continue;
        bool live = true;
        try {
            ask_craned(replica.path, {{"cmd", "status"}});
        } catch (const std::runtime_error&) {
            live = false;
        }
        uint64_t commit = 0;
        const std::vector<json> entries = read_entries(db, request, live, commit);
        if (as_json) {
            std::cout << json{{"replica", replica.id}, {"entries", entries}}.dump(1) << "\n";
        } else {
            for (const json& entry : entries) print_entry(entry);
        }
        return kExitOk;
    }
    throw std::runtime_error(state_dir + " holds no such replica with a log");
}

}  // namespace crane::proxy
