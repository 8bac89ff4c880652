#include "checkpoint/inventory.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <stdexcept>

#include "checkpoint/command.hpp"
#include "checkpoint/file_sum.hpp"
#include "checkpoint/program_check.hpp"

namespace crane::checkpoint {
namespace {

/// A larger file that a command line names is data rather than what the server is made of.
constexpr uint64_t kLargestNamedFile = 256ULL << 20;
constexpr size_t kMaxFiles = 512;
constexpr size_t kNamedDifferences = 4;

bool regular(const std::string& path, struct stat* info) {
    return ::stat(path.c_str(), info) == 0 && S_ISREG(info->st_mode);
}

bool below(const std::string& path, std::string_view folder) {
    return path.compare(0, folder.size(), folder) == 0;
}

/// Neither made anew in each container nor the kernel's.
bool lasting(const std::string& path) {
    for (const std::string_view folder : {"/run/", "/tmp/", "/var/run/", "/proc/", "/sys/", "/dev/"})
        if (below(path, folder)) return false;
    return true;
}

/// Of a word of the command line, or of what follows '=' in it.
void add_named(const DomainSpec& spec, const std::string& word, std::set<std::string>& files) {
    if (word.empty()) return;
    const std::string path = word[0] == '/' ? word : spec.cwd + "/" + word;
    struct stat info {};
    if (regular(path, &info) && lasting(path) && static_cast<uint64_t>(info.st_size) <= kLargestNamedFile)
        files.insert(path);
}

std::set<std::string> named_files(const DomainSpec& spec) {
    std::set<std::string> files;
    // Without a container the server may have written them.
    if (spec.isolation == Isolation::kNone) return files;
    for (size_t i = 1; i < spec.argv.size(); ++i) {
        const std::string& word = spec.argv[i];
        const size_t equals = word.find('=');
        add_named(spec, word, files);
        if (equals != std::string::npos) add_named(spec, word.substr(equals + 1), files);
    }
    return files;
}

std::vector<std::string> libraries_of(const DomainSpec& spec, const ProgramCheck& program) {
    if (program.loader.empty()) return {};
    std::vector<std::string> words{"/usr/bin/env", "-i"};
    for (const std::string& variable : spec.environment)
        if (below(variable, "LD_LIBRARY_PATH=")) words.push_back(variable);
    // By its own path: where it was started through a link, the loader would look for $ORIGIN beside the
    // link.
    std::error_code error;
    const std::filesystem::path own = std::filesystem::canonical(program.files.back(), error);
    words.insert(words.end(), {program.loader, "--list", error ? program.files.back() : own.string()});
    return listed_libraries(output_of(words, "listing the libraries of " + program.files.back()));
}

/// On one line, and fit for JSON, whatever the path consists of.
std::string escaped(const std::string& path) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    std::string out;
    for (const char c : path) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte > ' ' && byte < 0x7f && c != '%') {
            out += c;
        } else {
            out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
        }
    }
    return out;
}

std::map<std::string, std::string> parts_of(std::string_view inventory) {
    std::map<std::string, std::string> parts;
    std::istringstream lines{std::string(inventory)};
    for (std::string line; std::getline(lines, line);) {
        const size_t space = line.find(' ');
        if (space != std::string::npos) parts[line.substr(space + 1)] = line.substr(0, space);
    }
    return parts;
}

}  // namespace

std::vector<std::string> listed_libraries(std::string_view text) {
    std::vector<std::string> out;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        std::istringstream in(line);
        std::string word;
        // "NAME => PATH (ADDRESS)", or "PATH (ADDRESS)"
        while (in >> word && word[0] != '/') {
        }
        if (!in) continue;
        std::string arrow, path;
        if (in >> arrow >> path && arrow == "=>") word = path;
        if (word[0] == '/') out.push_back(word);
    }
    return out;
}

std::string Inventory::sum_of_path(const std::string& path) {
    const File file(path, O_RDONLY);
    struct stat info {};
    if (::fstat(file.fd(), &info) != 0) throw file_error("look at", path, errno);
    const auto ns = [](const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; };
    const Known now{info.st_dev,      info.st_ino,      static_cast<uint64_t>(info.st_size),
                    ns(info.st_mtim), ns(info.st_ctim), {}};
    Known& known = known_[path];
    const auto same = [](const Known& a, const Known& b) {
        return a.device == b.device && a.inode == b.inode && a.bytes == b.bytes &&
               a.modified_ns == b.modified_ns && a.changed_ns == b.changed_ns;
    };
    if (known.sum.empty() || !same(known, now)) {
        known = now;
        known.sum = sum_of_file(file, never);
    }
    return known.sum;
}

std::map<std::string, std::string> Inventory::parts_on_host(const DomainSpec& spec) {
    const ProgramCheck program = check_program(spec.argv[0], spec.cwd, spec.environment);
    if (program.path.empty()) throw std::runtime_error(program.message);
    std::set<std::string> files = named_files(spec);
    files.insert(program.files.begin(), program.files.end());
    for (const std::string& library : libraries_of(spec, program)) files.insert(library);
    if (files.size() > kMaxFiles)
        throw std::runtime_error("the command line names more than " + std::to_string(kMaxFiles) + " files");
    std::map<std::string, std::string> parts;
    for (const std::string& path : files) {
        // As the file system has it: what is behind a symbolic link is what counts.
        char* whole = ::realpath(path.c_str(), nullptr);
        if (whole == nullptr) throw file_error("find", path, errno);
        const std::string target(whole);
        ::free(whole);
        parts[escaped(path)] = sum_of_path(target);
    }
    return parts;
}

std::string Inventory::take(const DomainSpec& spec) {
    std::map<std::string, std::string> parts;
    if (spec.image.empty()) {
        parts = parts_on_host(spec);
    } else {
        images_.check(spec.image, spec.image_sum);
        parts[std::string(kImagePart)] = kImagePrefix + spec.image_sum;
    }
    if (spec.schedule) parts[std::string(kShimPart)] = sum_of_path(spec.shim_path);
    std::string text;
    for (const auto& [path, sum] : parts) text += sum + " " + path + "\n";
    if (text.size() > kMaxInventoryBytes)
        throw std::runtime_error("the names of the server's files are too long together");
    return text;
}

std::string image_in(std::string_view inventory) {
    const auto parts = parts_of(inventory);
    const auto found = parts.find(std::string(kImagePart));
    return found == parts.end() ? "" : image_sum_in(found->second).value_or("");
}

std::string inventory_difference(std::string_view was, std::string_view is, bool with_shim) {
    const auto old_parts = parts_of(was), parts = parts_of(is);
    std::vector<std::string> said;
    for (const auto& [path, sum] : old_parts) {
        const auto found = parts.find(path);
        if (path == kShimPart && !with_shim) continue;
        if (found == parts.end()) {
            said.push_back(path + " is not used any more");
        } else if (found->second != sum) {
            said.push_back(path + " has changed");
        }
    }
    for (const auto& [path, sum] : parts)
        if (old_parts.count(path) == 0 && (with_shim || path != kShimPart)) said.push_back(path + " is new");
    std::string text;
    for (size_t i = 0; i < said.size() && i < kNamedDifferences; ++i) text += (i ? ", " : "") + said[i];
    if (said.size() > kNamedDifferences)
        text += " and " + std::to_string(said.size() - kNamedDifferences) + " files more";
    return text;
}

}  // namespace crane::checkpoint
