#include "checkpoint/hidden_paths.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "checkpoint/mounts.hpp"
#include "checkpoint/program_check.hpp"

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

// Passwords, keys and backups of the host, and other clusters.
constexpr const char* kSecrets[] = {"/etc/shadow",
                                    "/etc/shadow-",
                                    "/etc/gshadow",
                                    "/etc/gshadow-",
                                    "/etc/sudoers",
                                    "/etc/sudoers.d",
                                    "/etc/ssh",
                                    "/etc/crane",
                                    "/etc/krb5.keytab",
                                    "/etc/security/opasswd",
                                    "/var/backups",
                                    "/var/lib/crane",
                                    "/var/lib/systemd",
                                    "/var/spool/cron",
                                    "/boot",
                                    "/etc/wireguard",
                                    "/etc/NetworkManager/system-connections",
                                    "/etc/wpa_supplicant",
                                    "/etc/credstore"};

// In a home that has to be seen.
constexpr const char* kHomeSecrets[] = {".ssh",
                                        ".gnupg",
                                        ".netrc",
                                        ".pgpass",
                                        ".my.cnf",
                                        ".aws",
                                        ".azure",
                                        ".kube",
                                        ".docker",
                                        ".git-credentials",
                                        ".config/gh",
                                        ".bash_history",
                                        ".local/state/crane"};

bool any_below(const std::vector<std::string>& paths, const std::string& folder) {
    return std::ranges::any_of(paths, [&](const std::string& path) { return is_below(path, folder); });
}

void add(const fs::path& path, std::vector<std::string>* out) {
    std::error_code error;
    if (!fs::exists(path, error)) return;
    out->push_back(path.lexically_normal().string());
    const fs::path real = fs::canonical(path, error);
    if (!error && real != path) out->push_back(real.string());
}

bool is_home(const std::string& path, const std::string& homes, const std::string& root_home) {
    return path == root_home || fs::path(path).parent_path() == homes;
}

std::string interpreter_of(const std::string& program) {
    std::ifstream file(program, std::ios::binary);
    std::string line, word;
    char mark[2] = {};
    if (!file.read(mark, 2) || mark[0] != '#' || mark[1] != '!' || !std::getline(file, line)) return {};
    std::istringstream(line) >> word;
    return word;
}

void hide_home(const std::string& home, const std::vector<std::string>& needed,
               std::vector<std::string>* out) {
    if (!any_below(needed, home)) {
        out->push_back(home);
        return;
    }
    for (const char* secret : kHomeSecrets) {
        const std::string path = home + "/" + secret;
        if (!any_below(needed, path)) out->push_back(path);
    }
}

}  // namespace

std::vector<std::string> usual_secrets() {
    return {std::begin(kSecrets), std::end(kSecrets)};
}

std::vector<std::string> needed_paths(const DomainSpec& spec) {
    std::vector<std::string> needed;
    const std::string program = check_program(spec.argv[0], spec.cwd, spec.environment).path;
    if (!program.empty()) {
        add(program, &needed);
        const std::string interpreter = interpreter_of(program);
        if (!interpreter.empty()) add(interpreter, &needed);
    }
    for (size_t i = 1; i < spec.argv.size(); ++i) {
        const std::string& word = spec.argv[i];
        if (word.empty() || word.size() > 4096) continue;
        if (word[0] != '-') add(fs::path(spec.cwd) / word, &needed);
        const size_t slash = word.find('/');
        if (slash != 0 && slash != std::string::npos)
            add(word.substr(slash), &needed);  // -c/etc/x, --file=/etc/x
    }
    // "/" names everything, and so nothing.
    std::erase_if(needed, [](const std::string& path) { return path == "/"; });
    return needed;
}

std::vector<std::string> hidden_paths(const DomainSpec& spec, const std::string& homes,
                                      const std::string& root_home) {
    // An image was made without them.
    if (!spec.image.empty()) return spec.hidden;
    std::vector<std::string> needed = needed_paths(spec);
    if (!is_home(spec.cwd, homes, root_home)) needed.push_back(spec.cwd);
    needed.insert(needed.end(), spec.shown.begin(), spec.shown.end());
    std::vector<std::string> hidden;
    for (const char* path : kSecrets)
        if (!any_below(needed, path)) hidden.emplace_back(path);
    hide_home(root_home, needed, &hidden);
    std::error_code ignored;
    if (!any_below(needed, homes))
        hidden.push_back(homes);
    else
        for (const auto& entry : fs::directory_iterator(homes, ignored))
            hide_home(entry.path().string(), needed, &hidden);
    std::erase_if(hidden, [&](const std::string& path) {
        return std::ranges::any_of(spec.shown,
                                   [&](const std::string& shown) { return is_below(path, shown); });
    });
    hidden.insert(hidden.end(), spec.hidden.begin(), spec.hidden.end());
    // A replica has no business in another's files.
    const std::string cluster = fs::path(spec.state_dir).parent_path().string();
    hidden.push_back(fs::exists(cluster + "/run.json") ? cluster : spec.state_dir);
    std::erase_if(hidden, [](const std::string& path) {
        std::error_code error;
        return !fs::exists(path, error) || error;
    });
    return hidden;
}

}  // namespace crane::checkpoint
