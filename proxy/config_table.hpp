// One table of craned's configuration file: its keys by type and range, and who wrote what wrong, by file and
// line.
#pragma once

#include <toml++/toml.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/config.hpp"

namespace crane::proxy {

/// Remembers which keys were asked for, so that the rest can be refused.
class ConfigTable {
  public:
    ConfigTable(const toml::table& table, std::string file, std::string prefix)
        : table_(table), file_(std::move(file)), prefix_(std::move(prefix)) {}

    /// Throws ConfigError: where the key is, and what is wrong with it.
    [[noreturn]] void fail(std::string_view key, const std::string& what) const;

    bool has(std::string_view key) const { return table_.contains(key); }
    std::string text(std::string_view key, std::string fallback);
    std::string required_text(std::string_view key);
    uint64_t number(std::string_view key, uint64_t fallback, uint64_t low, uint64_t high);
    bool boolean(std::string_view key, bool fallback);
    std::string choice(std::string_view key, std::string fallback, const std::vector<std::string>& allowed);
    std::vector<std::string> texts(std::string_view key);
    /// The sub-table `key`, or an empty one.
    ConfigTable table(std::string_view key);
    /// The elements of the array of tables `key`; none: it is not there.
    std::vector<ConfigTable> tables(std::string_view key);
    std::vector<std::string> keys() const;

    void refuse_the_rest() const;
    void check_absolute(std::string_view key, const std::string& path) const;

  private:
    const toml::node* take(std::string_view key);

    const toml::table& table_;
    std::string file_;
    std::string prefix_;
    std::set<std::string> asked_;
};

// --- the tables of more than a few keys

/// [[replica]] and [port_map], after mode and replica_id.
void read_replicas(ConfigTable& root, Config& config);
/// [confinement]: whom the server runs as, and the exceptions from what a server may do.
void read_confinement(ConfigTable& root, Config& config);

}  // namespace crane::proxy
