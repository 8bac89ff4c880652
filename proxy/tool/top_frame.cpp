#include "proxy/tool/top_frame.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "proxy/metrics/conditions.hpp"
#include "proxy/tool/cluster_health.hpp"
#include "proxy/tool/time_words.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

const json& at(const json& row, const char* pointer) {
    static const json nothing;
    const json::json_pointer where(pointer);
    return row.contains(where) ? row.at(where) : nothing;
}

double number(const json& row, const char* pointer) {
    const json& found = at(row, pointer);
    return found.is_number() ? found.get<double>() : 0;
}

std::string text(const json& row, const char* pointer) {
    const json& found = at(row, pointer);
    return found.is_string() ? found.get<std::string>() : "";
}

/// "950", "12.3k", "4.6M"
std::string short_number(double value) {
    const char* unit = "";
    for (const char* next : {"k", "M", "G", "T"}) {
        if (value < 9999.5) break;
        value /= 1000;
        unit = next;
    }
    char out[32];
    snprintf(out, sizeof(out), *unit && value < 99.95 ? "%.1f%s" : "%.0f%s", value, unit);
    return out;
}

std::string padded(const std::string& what, int width) {
    char out[128];
    snprintf(out, sizeof(out), "%*s", width, what.c_str());
    return out;
}

/// Cells under their headings, each right-aligned in its own width; the first is to the left.
struct Table {
    struct Column {
        const char* name;
        int width;
    };
    std::vector<Column> columns;
    std::vector<TopLine> lines;

    explicit Table(std::vector<Column> all) : columns(std::move(all)) {
        std::vector<std::string> names;
        for (const Column& one : columns) names.emplace_back(one.name);
        add(names, TopLine::Style::kHead);
    }
    void add(const std::vector<std::string>& cells, TopLine::Style style = TopLine::Style::kPlain) {
        std::string line;
        for (size_t i = 0; i < cells.size(); ++i)
            line += i == 0 ? padded(cells[i], -columns[i].width) : " " + padded(cells[i], columns[i].width);
        lines.push_back({line, style});
    }
};

bool alive(const json& row) {
    return row.value("alive", false);
}

std::string name_of(const json& row) {
    return std::to_string(row.value("replica", 0u));
}

const json* row_before(const TopSample& before, const json& now) {
    for (const json& row : before.rows)
        if (alive(row) && row["replica"] == now["replica"] && row["pid"] == now["pid"]) return &row;
    return nullptr;
}

std::string checkpoint_age(const json& row, int64_t now_s) {
    const double since_s = number(row, "/checkpoint/since_s");
    return since_s <= 0 ? "-" : short_number(std::max(0.0, static_cast<double>(now_s) - since_s)) + "s";
}

Table who_table(const TopSample& now, int64_t now_s) {
    Table out({{"replica", 7},
               {"role", 10},
               {"server", 10},
               {"view", 5},
               {"decided", 8},
               {"lag", 6},
               {"clients", 7},
               {"waiting", 7},
               {"held MB", 7},
               {"checkpt", 7},
               {"disk GB", 7}});
    for (const json& row : now.rows) {
        if (!alive(row)) {
            out.add({name_of(row), "down"}, TopLine::Style::kBad);
            continue;
        }
        char held[32], disk[32];
        snprintf(held, sizeof(held), "%.1f", number(row, "/memory/output_bytes") / 1e6);
        snprintf(disk, sizeof(disk), "%.1f", number(row, "/disk/free_bytes") / 1e9);
        const bool ill = !alarms_in(row, now_s).empty();
        out.add({name_of(row), text(row, "/role"), row.value("witness", false) ? "-" : text(row, "/server"),
                 short_number(number(row, "/view")), short_number(number(row, "/decided")),
                 short_number(number(row, "/lag")), short_number(number(row, "/connections")),
                 short_number(number(row, "/waiting_clients")),
                 std::string(at(row, "/output_held") == true ? "!" : "") + held, checkpoint_age(row, now_s),
                 disk},
                ill ? TopLine::Style::kBad : TopLine::Style::kPlain);
    }
    return out;
}

Table rate_table(const TopSample& before, const TopSample& now) {
    Table out({{"replica", 7},
               {"entries/s", 9},
               {"calls/s", 8},
               {"clocks/s", 8},
               {"in B/s", 8},
               {"out B/s", 8},
               {"decide ms", 13},
               {"sync ms", 13},
               {"cpu %", 6},
               {"loop", 5}});
    const double seconds = static_cast<double>(now.at_ns - before.at_ns) / 1e9;
    for (const json& row : now.rows) {
        const json* const then = alive(row) ? row_before(before, row) : nullptr;
        if (then == nullptr || seconds <= 0) continue;
        const auto per_s = [&](const char* what) {
            return std::max(0.0, number(row, what) - number(*then, what)) / seconds;
        };
        const auto latency = [&](const char* which) {
            return quantile_ms(at(*then, which), at(row, which), 0.5) + " / " +
                   quantile_ms(at(*then, which), at(row, which), 0.99);
        };
        const double cpu = 100 * (per_s("/cpu_seconds/craned") + per_s("/cpu_seconds/domain"));
        out.add({name_of(row), short_number(per_s("/decided")), short_number(per_s("/counters/calls")),
                 short_number(per_s("/clock")), short_number(per_s("/counters/client_bytes_in")),
                 short_number(per_s("/counters/client_bytes_out")), latency("/latency/consensus"),
                 latency("/latency/sync"), short_number(cpu), short_number(number(row, "/loop/last_ms"))});
    }
    return out;
}

/// Without what a terminal would obey, and no wider than it is.
std::string cut(const std::string& line, size_t width) {
    std::string out;
    size_t shown = 0;
    for (const char c : line) {
        const bool continues = (static_cast<unsigned char>(c) & 0xc0) == 0x80;  // of a character of UTF-8
        if (!continues && shown++ == width) break;
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
    return out;
}

}  // namespace

std::string quantile_ms(const json& before, const json& now, double share) {
    if (!now.is_object() || !now.contains("buckets")) return "-";
    std::vector<std::pair<double, double>> counts;  // upper bound in us, 0: none; how many
    double all = 0;
    for (size_t i = 0; i < now["buckets"].size(); ++i) {
        const json& bucket = now["buckets"][i];
        double count = bucket[1].get<double>();
        if (before.is_object() && before.contains("buckets") && i < before["buckets"].size())
            count -= before["buckets"][i][1].get<double>();
        counts.emplace_back(bucket[0].is_number() ? bucket[0].get<double>() : 0, std::max(0.0, count));
        all += counts.back().second;
    }
    if (all <= 0) return "-";
    double below = 0, last = 0;
    for (const auto& [bound_us, count] : counts) {
        below += count;
        char out[32];
        if (bound_us == 0) break;
        last = bound_us;
        if (below < share * all) continue;
        snprintf(out, sizeof(out), bound_us < 10'000 ? "%.1f" : "%.0f", bound_us / 1000);
        return out;
    }
    return ">" + short_number(last / 1000);
}

std::vector<TopLine> top_frame(const TopSample& before, const TopSample& now, size_t width, size_t height) {
    using Style = TopLine::Style;
    const ClusterHealth health = assess_cluster(now.rows);
    std::string cluster;
    int64_t now_s = 0;
    for (const json& row : now.rows) {
        if (cluster.empty()) cluster = text(row, "/cluster");
        now_s = std::max(now_s, row.value("asked_s", int64_t{0}));
    }
    std::vector<TopLine> out;
    out.push_back(
        {"cluster " + (cluster.empty() ? "?" : cluster) + ", " +
             (health.primary == 0 ? "no primary" : "primary: replica " + std::to_string(health.primary)) +
             (health.primary_since_s == 0 ? "" : " for " + span_text(now_s - health.primary_since_s)) + ", " +
             (health.problems.empty() ? "all is well" : "SOMETHING IS WRONG"),
         health.problems.empty() ? Style::kHead : Style::kBad});
    const Table who = who_table(now, now_s), rates = rate_table(before, now);
    for (const Table* table : {&who, &rates}) {
        out.push_back({});
        out.insert(out.end(), table->lines.begin(), table->lines.end());
    }
    std::vector<TopLine> words;
    for (const std::string& one : health.problems) words.push_back({one, Style::kBad});
    for (const json& row : now.rows)
        if (alive(row))
            for (const Alarm& alarm : alarms_in(row, now_s))
                words.push_back({"replica " + name_of(row) + ": " + alarm.text, Style::kBad});
    for (const std::string& one : health.warnings) words.push_back({one});
    if (!words.empty()) out.push_back({});
    out.insert(out.end(), words.begin(), words.end());
    if (out.size() > height && height > 0) {
        const size_t left_out = out.size() - height + 1;
        out.resize(height - 1);
        out.push_back(
            {"… " + std::to_string(left_out) + " more lines: a larger window shows them", Style::kBad});
    }
    for (TopLine& line : out) line.text = cut(line.text, width);
    return out;
}

}  // namespace crane::proxy
