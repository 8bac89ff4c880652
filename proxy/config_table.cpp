#include "proxy/config_table.hpp"

#include <sstream>

namespace crane::proxy {

void ConfigTable::fail(std::string_view key, const std::string& what) const {
    std::ostringstream out;
    out << file_;
    if (const toml::node* node = table_.get(key)) out << ":" << node->source().begin.line;
    out << ": " << prefix_ << key << ": " << what;
    throw ConfigError(out.str());
}

std::string ConfigTable::text(std::string_view key, std::string fallback) {
    const toml::node* node = take(key);
    if (!node) return fallback;
    if (!node->is_string()) fail(key, "must be a string in quotes");
    return node->as_string()->get();
}

std::string ConfigTable::required_text(std::string_view key) {
    if (!has(key)) fail(key, "is missing; add " + std::string(key) + " = \"…\"");
    std::string value = text(key, "");
    if (value.empty()) fail(key, "must not be empty");
    return value;
}

uint64_t ConfigTable::number(std::string_view key, uint64_t fallback, uint64_t low, uint64_t high) {
    const toml::node* node = take(key);
    if (!node) return fallback;
    const std::string range =
        "must be a whole number from " + std::to_string(low) + " to " + std::to_string(high);
    if (!node->is_integer()) fail(key, range);
    const int64_t value = node->as_integer()->get();
    if (value < 0 || static_cast<uint64_t>(value) < low || static_cast<uint64_t>(value) > high) {
        fail(key, range + ", not " + std::to_string(value));
    }
    return static_cast<uint64_t>(value);
}

bool ConfigTable::boolean(std::string_view key, bool fallback) {
    const toml::node* node = take(key);
    if (!node) return fallback;
    if (!node->is_boolean()) fail(key, "must be true or false");
    return node->as_boolean()->get();
}

std::string ConfigTable::choice(std::string_view key, std::string fallback,
                                const std::vector<std::string>& allowed) {
    std::string value = text(key, std::move(fallback));
    std::string list;
    for (const std::string& one : allowed) {
        if (value == one) return value;
        list += (list.empty() ? "\"" : ", \"") + one + "\"";
    }
    fail(key, "is \"" + value + "\"; use one of " + list);
}

std::vector<std::string> ConfigTable::texts(std::string_view key) {
    std::vector<std::string> out;
    const toml::node* node = take(key);
    if (!node) return out;
    if (!node->is_array()) fail(key, "must be a list of strings");
    for (const toml::node& item : *node->as_array()) {
        if (!item.is_string()) fail(key, "must be a list of strings");
        out.push_back(item.as_string()->get());
    }
    return out;
}

ConfigTable ConfigTable::table(std::string_view key) {
    static const toml::table empty;
    const toml::node* node = take(key);
    if (node && !node->is_table()) fail(key, "must be a table: [" + std::string(key) + "]");
    return ConfigTable(node ? *node->as_table() : empty, file_, prefix_ + std::string(key) + ".");
}

std::vector<ConfigTable> ConfigTable::tables(std::string_view key) {
    std::vector<ConfigTable> out;
    const toml::node* node = take(key);
    if (!node) return out;
    if (!node->is_array_of_tables())
        fail(key, "needs one [[" + std::string(key) + "]] table per " + std::string(key));
    for (const toml::node& item : *node->as_array())
        out.emplace_back(*item.as_table(), file_, prefix_ + std::string(key) + ".");
    return out;
}

std::vector<std::string> ConfigTable::keys() const {
    std::vector<std::string> out;
    for (const auto& [key, node] : table_) out.emplace_back(key.str());
    return out;
}

const toml::node* ConfigTable::take(std::string_view key) {
    asked_.emplace(key);
    return table_.get(key);
}

void ConfigTable::refuse_the_rest() const {
    for (const auto& [key, node] : table_) {
        if (asked_.count(std::string(key.str()))) continue;
        std::string known;
        for (const std::string& one : asked_) known += (known.empty() ? "" : ", ") + one;
        fail(key.str(), "is not a known key here; remove it or correct it (known: " + known + ")");
    }
}

void ConfigTable::check_absolute(std::string_view key, const std::string& path) const {
    if (path.empty() || path[0] != '/') fail(key, "must be an absolute path, not \"" + path + "\"");
}

}  // namespace crane::proxy
