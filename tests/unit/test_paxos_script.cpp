#include "test_paxos_script.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "test_paxos_script_world.hpp"

namespace crane::paxos::script {
namespace {

using Words = std::vector<std::string>;

constexpr size_t kLinesBefore = 6, kLinesAfter = 2;  // shown around what differs

std::vector<std::string> split_lines(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

Words split_words(const std::string& line) {
    std::istringstream in(line);
    Words words;
    for (std::string word; in >> word;) words.push_back(word);
    return words;
}

uint64_t number(const std::string& text) {
    if (text.empty() || text.size() > 12 || text.find_first_not_of("0123456789") != std::string::npos)
        throw std::runtime_error("\"" + text + "\" is not a number");
    return std::stoull(text);
}

uint64_t microseconds(const std::string& text) {
    if (text.size() < 3 || text.substr(text.size() - 2) != "ms")
        throw std::runtime_error("\"" + text + "\" is not a time like 50ms");
    return number(text.substr(0, text.size() - 2)) * 1000;
}

const std::string& word(const Words& words, size_t place) {
    if (place >= words.size())
        throw std::runtime_error("something is missing after \"" + words.back() + "\"");
    return words[place];
}

ReplicaId replica_at(const Words& words, size_t place) {
    return static_cast<ReplicaId>(number(word(words, place)));
}

// "1->2", "1->", "->2": one way; "1-2", "1-": both.
bool parse_link(const std::string& text, Selector& selector) {
    const size_t dash = text.find('-');
    if (dash == std::string::npos) return false;
    selector.both_ways = text.compare(dash, 2, "->") != 0;
    const std::string from = text.substr(0, dash), to = text.substr(dash + (selector.both_ways ? 1 : 2));
    if (!from.empty()) selector.from = static_cast<ReplicaId>(number(from));
    if (!to.empty()) selector.to = static_cast<ReplicaId>(number(to));
    return true;
}

Selector parse_selector(const Words& words) {
    Selector selector;
    for (size_t i = 1; i < words.size(); ++i) {
        if (words[i] == "first")
            selector.first = true;
        else if (words[i] == "last")
            selector.last = true;
        else if (words[i] != "together" && !parse_link(words[i], selector)) {
            bool known = false;
            for (int type = 1; type <= static_cast<int>(MessageType::kTakeOver); ++type)
                known |= words[i] == message_name(static_cast<MessageType>(type));
            if (!known) throw std::runtime_error("\"" + words[i] + "\" picks no message");
            selector.type = words[i];
        }
    }
    return selector;
}

// a, a*300 (300 times the letter), v1..v9
std::vector<std::string> parse_values(const Words& words) {
    std::vector<std::string> values;
    for (size_t i = 2; i < words.size(); ++i) {
        const std::string& text = words[i];
        const size_t star = text.find('*'), dots = text.find("..");
        if (star == 1) {
            values.emplace_back(number(text.substr(2)), text[0]);
        } else if (dots != std::string::npos) {
            const std::string letter = text.substr(0, 1);
            for (uint64_t n = number(text.substr(1, dots - 1)); n <= number(text.substr(dots + 3)); ++n)
                values.push_back(letter + std::to_string(n));
        } else {
            values.push_back(text);
        }
    }
    return values;
}

std::unique_ptr<World> make_cluster(const Words& words) {
    CoreConfig config;
    const std::map<std::string, size_t CoreConfig::*> settings = {
        {"inflight-entries", &CoreConfig::max_inflight_entries},
        {"inflight-bytes", &CoreConfig::max_inflight_bytes},
        {"batch-bytes", &CoreConfig::max_batch_bytes},
        {"memory-entries", &CoreConfig::max_memory_entries},
        {"memory-bytes", &CoreConfig::max_memory_bytes},
        {"delivery-entries", &CoreConfig::max_delivery_entries},
    };
    for (size_t i = 2; i < words.size(); ++i) {
        const size_t equals = words[i].find('=');
        const auto setting = settings.find(words[i].substr(0, equals));
        if (equals == std::string::npos || setting == settings.end())
            throw std::runtime_error("\"" + words[i] + "\" is not a setting");
        config.*(setting->second) = number(words[i].substr(equals + 1));
    }
    return std::make_unique<World>(replica_at(words, 1), config);
}

using Command = std::function<void(World&, const Words&)>;

void for_those(World& world, const Words& words, const std::function<void(ReplicaId)>& act) {
    if (words.size() > 1 && words[1] != "all") return act(replica_at(words, 1));
    for (ReplicaId id : world.ids()) act(id);
}

std::map<std::string, Command> message_commands() {
    return {
        {"deliver",
         [](World& world, const Words& words) {
             const bool together = std::find(words.begin(), words.end(), "together") != words.end();
             world.deliver(parse_selector(words), together);
         }},
        {"drop", [](World& world, const Words& words) { world.drop(parse_selector(words)); }},
        {"duplicate", [](World& world, const Words& words) { world.duplicate(parse_selector(words)); }},
        {"hold", [](World& world, const Words& words) { world.hold(parse_selector(words)); }},
        {"release", [](World& world, const Words&) { world.release(); }},
        {"settle", [](World& world, const Words&) { world.settle(); }},
        {"cut", [](World& world, const Words& words) { world.cut(parse_selector(words)); }},
        {"heal", [](World& world, const Words&) { world.heal(); }},
        {"network", [](World& world, const Words&) { world.show_network(); }},
        {"wait", [](World& world, const Words& words) { world.wait(microseconds(word(words, 1)), false); }},
        {"run", [](World& world, const Words& words) { world.wait(microseconds(word(words, 1)), true); }},
        {"timeout", [](World& world, const Words& words) { world.timeout(replica_at(words, 1)); }},
    };
}

std::map<std::string, Command> replica_commands() {
    return {
        {"start",
         [](World& world, const Words& words) {
             world.start(replica_at(words, 1), words.size() > 3 ? number(words[3]) : 0);
         }},
        {"crash",
         [](World& world, const Words& words) {
             const std::string write = words.size() > 2 ? words[2] : "";
             if (!write.empty() && write != "lost" && write != "kept")
                 throw std::runtime_error("a write is lost or kept");
             world.crash(replica_at(words, 1), write);
         }},
        {"lose-disk",
         [](World& world, const Words& words) {
             world.lose_disk(replica_at(words, 1), words.size() < 3 || words[2] != "unmarked");
         }},
        {"slow-disk", [](World& world, const Words& words) { world.slow_disk(replica_at(words, 1), true); }},
        {"fast-disk", [](World& world, const Words& words) { world.slow_disk(replica_at(words, 1), false); }},
        {"finish-write", [](World& world, const Words& words) { world.finish_write(replica_at(words, 1)); }},
        {"propose",
         [](World& world, const Words& words) { world.propose(replica_at(words, 1), parse_values(words)); }},
        {"transfer",
         [](World& world, const Words& words) {
             world.transfer(replica_at(words, 1), words.size() > 2 ? replica_at(words, 2) : kNoReplica);
         }},
        {"add",
         [](World& world, const Words& words) {
             world.change(replica_at(words, 1), {ChangeKind::kAdd, replica_at(words, 2), ""});
         }},
        {"promote",
         [](World& world, const Words& words) {
             world.change(replica_at(words, 1), {ChangeKind::kPromote, replica_at(words, 2), ""});
         }},
        {"remove",
         [](World& world, const Words& words) {
             world.change(replica_at(words, 1), {ChangeKind::kRemove, replica_at(words, 2), ""});
         }},
        {"bar", [](World& world, const Words& words) { world.bar(replica_at(words, 1), true); }},
        {"unbar", [](World& world, const Words& words) { world.bar(replica_at(words, 1), false); }},
        {"full", [](World& world, const Words& words) { world.fill_disk(replica_at(words, 1), true); }},
        {"room", [](World& world, const Words& words) { world.fill_disk(replica_at(words, 1), false); }},
        {"step-down", [](World& world, const Words& words) { world.step_down(replica_at(words, 1)); }},
        {"shut-down", [](World& world, const Words& words) { world.shut_down(replica_at(words, 1)); }},
        {"hold-checkpoint",
         [](World& world, const Words& words) {
             for_those(world, words,
                       [&](ReplicaId id) { world.hold_checkpoint(id, number(word(words, 2))); });
         }},
        {"link-restored",
         [](World& world, const Words& words) {
             world.link_restored(replica_at(words, 1), replica_at(words, 2));
         }},
        {"gone", [](World& world,
                    const Words& words) { world.peer_gone(replica_at(words, 1), replica_at(words, 2)); }},
        {"pause-delivery", [](World& world, const Words& words) { world.pause(replica_at(words, 1), true); }},
        {"resume-delivery",
         [](World& world, const Words& words) { world.pause(replica_at(words, 1), false); }},
        {"show", [](World& world,
                    const Words& words) { for_those(world, words, [&](ReplicaId id) { world.show(id); }); }},
        {"describe",
         [](World& world, const Words& words) {
             for_those(world, words, [&](ReplicaId id) { world.describe_core(id); });
         }},
        {"disk",
         [](World& world, const Words& words) {
             for_those(world, words, [&](ReplicaId id) { world.show_disk(id); });
         }},
    };
}

class Interpreter {
  public:
    Interpreter() : commands_(message_commands()) {
        for (auto& [name, command] : replica_commands()) commands_[name] = command;
    }

    // Throws when the command makes no sense, or when a promise was broken.
    std::string run(const std::string& line) {
        Words words = split_words(line);
        const std::string detail = words.front();
        const bool brief = detail == "brief", quiet = detail == "quiet";
        if (brief || quiet) words.erase(words.begin());
        if (words.empty()) throw std::runtime_error(detail + " what?");
        if (words.front() == "cluster") {
            world_ = make_cluster(words);
        } else {
            const auto command = commands_.find(words.front());
            if (command == commands_.end())
                throw std::runtime_error("\"" + words.front() + "\" is not a command");
            if (world_ == nullptr) throw std::runtime_error("a script begins with \"cluster N\"");
            world_->be_brief(brief);
            command->second(*world_, words);
        }
        if (!world_->violation().empty()) throw std::runtime_error("VIOLATION: " + world_->violation());
        const std::string transcript = world_->take_transcript();
        return quiet ? "" : transcript;
    }

    std::string take_transcript() { return world_ != nullptr ? world_->take_transcript() : ""; }

  private:
    std::map<std::string, Command> commands_;
    std::unique_ptr<World> world_;
};

}  // namespace

Outcome run(const std::string& script) {
    Outcome outcome;
    Interpreter interpreter;
    std::string transcript;
    bool expected = false;  // within what a transcript was before
    const auto end_block = [&] {
        if (!expected) return;
        outcome.text += transcript.empty() ? "nothing\n" : transcript;
        transcript.clear();
        expected = false;
    };
    for (const std::string& line : split_lines(script)) {
        if (expected && !line.empty()) continue;
        end_block();
        outcome.text += line + "\n";
        if (line == "----") {
            expected = true;
        } else if (!line.empty() && line[0] != '#' && outcome.problem.empty()) {
            try {
                transcript += interpreter.run(line);
            } catch (const std::exception& error) {
                outcome.problem = "\"" + line + "\": " + error.what();
                transcript += interpreter.take_transcript() + outcome.problem + "\n";
            }
        }
    }
    end_block();
    if (!transcript.empty() && outcome.problem.empty())
        outcome.problem = "the last commands are not followed by ----";
    return outcome;
}

std::string difference(const std::string& expected, const std::string& actual) {
    if (expected == actual) return "";
    const std::vector<std::string> was = split_lines(expected), is = split_lines(actual);
    // The longest common subsequence, from the end.
    std::vector<std::vector<size_t>> common(was.size() + 1, std::vector<size_t>(is.size() + 1));
    for (size_t i = was.size(); i-- > 0;)
        for (size_t j = is.size(); j-- > 0;)
            common[i][j] =
                was[i] == is[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
    std::vector<std::string> lines;
    for (size_t i = 0, j = 0; i < was.size() || j < is.size();) {
        if (i < was.size() && j < is.size() && was[i] == is[j]) {
            lines.push_back("    " + was[i]);
            ++i, ++j;
        } else if (j == is.size() || (i < was.size() && common[i + 1][j] >= common[i][j + 1])) {
            lines.push_back("-   " + was[i++]);
        } else {
            lines.push_back("+   " + is[j++]);
        }
    }
    std::string text;
    size_t shown = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
        if (lines[i][0] == ' ') continue;
        const size_t from = std::max(shown, i - std::min(i, kLinesBefore));
        if (from > shown) text += "  ...\n";
        for (shown = from; shown < std::min(lines.size(), i + 1 + kLinesAfter); ++shown)
            text += lines[shown] + "\n";
    }
    return text;
}

}  // namespace crane::paxos::script
