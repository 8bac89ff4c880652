// crane ca: the authority of a cluster and its replicas' certificates, in files.
//
// Rules kept here:
//   - nothing that cannot be made again is overwritten: an authority never, a certificate only by one for the
//     same replica of the same cluster. Whom a directory's holder trusts is not changed by what is issued
//     into it;
//   - a private key is its owner's from the first byte on, and every file appears whole or not at all;
//   - every replica's files have the same names, so that craned.toml is the same on all hosts.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "paxos/link/certificate.hpp"
#include "paxos/link/openssl.hpp"
#include "paxos/link/tls.hpp"
#include "proxy/config.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

namespace {

namespace fs = std::filesystem;
using paxos::CertificateInfo;
using paxos::kDaySeconds;

constexpr uint32_t kAuthorityDays = 3650, kReplicaDays = 825, kOperatorDays = 90;
constexpr int64_t kClockSkewS = 7 * kDaySeconds;  ///< hosts whose clocks are behind this one's
constexpr size_t kMaxFileBytes = 1 << 20;

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
    throw std::runtime_error(path.string() + ": " + what);
}

std::string read_text(const fs::path& path, const std::string& advice) {
    std::error_code error;
    if (!fs::exists(path, error)) fail(path, (error ? error.message() : "does not exist") + advice);
    if (!fs::is_regular_file(path, error)) fail(path, "is no regular file");
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    if (in && fs::file_size(path, error) <= kMaxFileBytes) text << in.rdbuf();
    if (!in || text.str().empty()) fail(path, "cannot be read, or is no PEM file");
    return text.str();
}

/// Whole, on disk, or not there at all.
void write_text(const fs::path& path, const std::string& text, mode_t mode) {
    const std::string temporary = path.string() + ".new";
    unlink(temporary.c_str());
    const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) fail(temporary, strerror(errno));
    const bool written = fchmod(fd, mode) == 0 &&
                         write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                         fsync(fd) == 0;
    const int error = errno;
    close(fd);
    if (!written || rename(temporary.c_str(), path.c_str()) != 0) {
        const std::string reason = strerror(written ? errno : error);
        unlink(temporary.c_str());
        fail(path, reason);
    }
}

void make_dir(const fs::path& dir) {
    std::error_code error;
    const fs::path parent = fs::absolute(dir).lexically_normal().parent_path();
    fs::create_directories(parent, error);
    if (mkdir(dir.c_str(), 0700) != 0 && !(errno == EEXIST && fs::is_directory(dir, error)))
        fail(dir, strerror(errno));
}

paxos::Validity validity(uint32_t days) {
    const int64_t now = time(nullptr);
    return {now - kClockSkewS, now + days * kDaySeconds};
}

nlohmann::json to_json(const fs::path& path, const CertificateInfo& info) {
    const int64_t left_s = info.validity.not_after_s - time(nullptr);
    nlohmann::json out{{"file", path.string()},
                       {"authority", info.authority},
                       {"name", info.uri},
                       {"cluster", info.identity.cluster},
                       {"not_before", paxos::utc_text(info.validity.not_before_s)},
                       {"not_after", paxos::utc_text(info.validity.not_after_s)},
                       {"days_left", left_s / kDaySeconds},
                       {"valid_now", left_s > 0 && info.validity.not_before_s <= time(nullptr)},
                       {"sha256", info.fingerprint}};
    if (info.identity.role != paxos::OperatorRole::kNone) {
        out["operator"] = info.identity.name;
        out["role"] = info.identity.role == paxos::OperatorRole::kRead ? "read" : "operate";
    } else if (!info.authority) {
        out["replica"] = info.identity.replica;
    }
    return out;
}

void print(const nlohmann::json& row) {
    const int64_t days = row["days_left"];
    const bool valid = row["valid_now"];
    const bool soon = valid && days < paxos::kRenewalWarningDays;
    printf("%s: %s\n  %s from %s to %s%s\n  sha256 %s\n", row["file"].get<std::string>().c_str(),
           row["name"].get<std::string>().empty() ? "not of Crane's making"
                                                  : row["name"].get<std::string>().c_str(),
           valid ? "valid" : "NOT VALID NOW:", row["not_before"].get<std::string>().c_str(),
           row["not_after"].get<std::string>().c_str(),
           soon ? (", " + std::to_string(days) + " days left: renew it").c_str() : "",
           row["sha256"].get<std::string>().c_str());
}

constexpr char kElsewhere[] = ": give another directory with --out, or move it away";

/// A certificate may be replaced by its successor, and by nothing else.
void check_replaceable(const fs::path& dir, const std::string& whose, const paxos::Identity& identity) {
    for (const char* end : {".crt", ".key"}) {
        const fs::path old = dir / (whose + end);
        std::error_code error;
        if (!fs::exists(old, error)) continue;
        const fs::path certificate = dir / (whose + ".crt");
        if (!fs::exists(certificate, error))
            fail(old, std::string("is there without its certificate") + kElsewhere);
        const CertificateInfo info = paxos::inspect_certificate(read_text(certificate, ""));
        if (info.identity != identity)
            fail(certificate, "is of " + (info.uri.empty() ? info.subject : info.uri) + ", not of " +
                                  paxos::to_uri(identity) + kElsewhere);
    }
}

/// Nothing of another cluster, or of an authority in another directory, is where this is to go.
void check_place(const fs::path& out, const fs::path& dir, const std::string& cluster) {
    std::error_code error;
    const fs::path key = out / "ca.key";
    if (fs::exists(key, error) && !fs::equivalent(out, dir, error))
        fail(key, "is the key of an authority that is not " + dir.string() + kElsewhere);
    for (const char* name : {"replica.crt", "operator.crt"}) {
        const fs::path certificate = out / name;
        if (!fs::exists(certificate, error)) continue;
        const CertificateInfo info = paxos::inspect_certificate(read_text(certificate, ""));
        if (info.identity.cluster != cluster)
            fail(certificate, "is of " + (info.uri.empty() ? info.subject : info.uri) + ", not of cluster " +
                                  cluster + kElsewhere);
    }
}

/// What `file`, a ca.crt, is to have: this authority's certificate; or what it has, where that is this one's
/// beside another's, which takes its place or gives way to it.
std::string trusted_in(const fs::path& file, const std::string& authority) {
    std::error_code error;
    if (!fs::exists(file, error)) return authority;
    const std::string present = read_text(file, "");
    const paxos::X509Ptr own = paxos::next_certificate(paxos::memory_bio(authority).get());
    const paxos::BioPtr bio = paxos::memory_bio(present);
    size_t count = 0;
    bool there = false;
    for (paxos::X509Ptr one; (one = paxos::next_certificate(bio.get())) != nullptr; ++count)
        there = there || EVP_PKEY_eq(X509_get0_pubkey(one.get()), X509_get0_pubkey(own.get())) == 1;
    ERR_clear_error();
    if (!there)
        fail(file, std::string("is another authority's, and its holder's peers with it") + kElsewhere +
                       ". Where one authority is to take another's place, that file is to have both "
                       "(\"When the authority ends\" in deployment.md)");
    return count == 1 ? authority : present;
}

std::vector<fs::path> certificates_in(const fs::path& dir) {
    std::vector<fs::path> out;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
        for (const char* whose : {"replica", "operator"}) {
            const fs::path inside = entry.path() / (std::string(whose) + ".crt");
            if (entry.path().filename().string().starts_with(std::string(whose) + "-") &&
                fs::exists(inside, error))
                out.push_back(inside);
        }
    }
    std::sort(out.begin(), out.end(), [](const fs::path& a, const fs::path& b) {
        const std::string one = a.parent_path().filename(), other = b.parent_path().filename();
        return one.size() != other.size() ? one.size() < other.size() : one < other;
    });
    out.insert(out.begin(), dir / "ca.crt");
    return out;
}

// An authority is two files; with one of them nothing can be issued, and a new one is not put over it.
void check_whole(const fs::path& dir) {
    std::error_code error;
    const fs::path certificate = dir / "ca.crt", key = dir / "ca.key";
    if (fs::exists(certificate, error) == fs::exists(key, error)) return;
    const bool has_key = fs::exists(key, error);
    fail(has_key ? key : certificate,
         "is there without " + (has_key ? certificate : key).string() +
             ": put that back. If it is lost and no certificate of this authority is in use, remove this "
             "file and run crane ca init again; else begin a new authority in another directory and issue "
             "all certificates with it");
}

}  // namespace

int tool_ca_init(const CaRequest& request, bool json) {
    const std::string& cluster = request.cluster;
    if (!paxos::usable_cluster_name(cluster) ||
        !std::all_of(cluster.begin(), cluster.end(), [](unsigned char c) { return isxdigit(c); }))
        throw std::runtime_error("--cluster \"" + cluster + "\": give the cluster_id of craned.toml, up to " +
                                 std::to_string(paxos::kMaxClusterNameBytes) +
                                 " hexadecimal digits (openssl rand -hex 8 makes a new one)");
    const fs::path dir = request.dir, certificate = dir / "ca.crt", key = dir / "ca.key";
    check_whole(dir);
    std::error_code error;
    for (const fs::path& path : {certificate, key})
        if (fs::exists(path, error))
            fail(path,
                 "is there already, and is never overwritten: crane ca issue uses it; for another cluster "
                 "give another --dir");
    const paxos::PemPair pair =
        paxos::make_authority(cluster, validity(request.days ? request.days : kAuthorityDays));
    make_dir(dir);
    write_text(key, pair.key, 0600);
    write_text(certificate, pair.certificate, 0644);
    const nlohmann::json row = to_json(certificate, paxos::inspect_certificate(pair.certificate));
    if (json) {
        printf("%s\n", row.dump().c_str());
        return kExitOk;
    }
    print(row);
    printf(
        "Keep %s secret, and a copy of it safe: whoever has it can make replicas of this cluster.\n"
        "Next, for each replica: crane ca issue --dir %s --replica N\n",
        key.c_str(), dir.c_str());
    return kExitOk;
}

int tool_ca_issue(const CaRequest& request, bool json) {
    const bool for_operator = request.replica == 0;
    if (request.replica > kMaxReplicaId)
        throw std::runtime_error("--replica " + std::to_string(request.replica) +
                                 ": there are replicas 1 to " + std::to_string(kMaxReplicaId));
    const fs::path dir = request.dir;
    check_whole(dir);
    const paxos::PemPair authority{
        read_text(dir / "ca.crt", "; crane ca init makes it"),
        read_text(dir / "ca.key", "; it was made by crane ca init, where is it now?")};
    const CertificateInfo ca = paxos::inspect_certificate(authority.certificate);
    if (ca.validity.not_after_s <= time(nullptr))
        fail(dir / "ca.crt",
             "expired on " + paxos::utc_text(ca.validity.not_after_s) +
                 ": begin a new authority in another directory (crane ca init), and issue all "
                 "certificates with it");
    paxos::Validity wanted = validity(request.days   ? request.days
                                      : for_operator ? kOperatorDays
                                                     : kReplicaDays);
    if (request.days == 0) wanted.not_after_s = std::min(wanted.not_after_s, ca.validity.not_after_s);
    const paxos::OperatorRole role = paxos::role_named(request.role);
    const paxos::PemPair pair = for_operator
                                    ? paxos::issue_operator_certificate(authority, role, request.name, wanted)
                                    : paxos::issue_certificate(authority, request.replica, wanted);
    const std::string whose = for_operator ? "operator" : "replica";
    const fs::path out =
        request.out.empty()
            ? dir / (whose + "-" + (for_operator ? request.name : std::to_string(request.replica)))
            : fs::path(request.out);
    check_replaceable(out, whose,
                      for_operator
                          ? paxos::Identity{ca.identity.cluster, paxos::kNoReplica, role, request.name}
                          : paxos::Identity{ca.identity.cluster, request.replica});
    check_place(out, dir, ca.identity.cluster);
    const std::string trusted = trusted_in(out / "ca.crt", authority.certificate);
    make_dir(out);
    write_text(out / "ca.crt", trusted, 0644);
    write_text(out / (whose + ".key"), pair.key, 0600);
    write_text(out / (whose + ".crt"), pair.certificate, 0644);
    const nlohmann::json row = to_json(out / (whose + ".crt"), paxos::inspect_certificate(pair.certificate));
    if (json) {
        printf("%s\n", row.dump().c_str());
        return kExitOk;
    }
    print(row);
    if (for_operator) {
        printf("Give the directory to its holder: crane --cluster HOST:PORT --cert %s --key %s status\n",
               (out / "operator.crt").c_str(), (out / "operator.key").c_str());
        return kExitOk;
    }
    printf(
        "Copy the directory to the host of replica %u (as /etc/crane/tls, readable by craned's user only), "
        "and name its files in [tls] of craned.toml. A craned that runs takes a renewed one by itself.\n",
        request.replica);
    return kExitOk;
}

int tool_ca_show(const CaRequest& request, bool json) {
    if (request.dir.empty() && request.files.empty())
        throw std::runtime_error("say which: --dir DIR, or files");
    std::vector<fs::path> paths(request.files.begin(), request.files.end());
    if (paths.empty()) paths = certificates_in(request.dir);
    nlohmann::json rows = nlohmann::json::array();
    bool valid = true;
    for (const fs::path& path : paths) {
        const std::string text = read_text(path, request.files.empty() ? "; crane ca init makes it" : "");
        try {
            rows.push_back(to_json(path, paxos::inspect_certificate(text)));
        } catch (const std::runtime_error& error) {
            fail(path, error.what());
        }
        valid = valid && rows.back()["valid_now"];
    }
    if (json) {
        printf("%s\n", rows.dump().c_str());
    } else {
        for (const nlohmann::json& row : rows) print(row);
    }
    return valid ? kExitOk : kExitNo;
}

}  // namespace crane::proxy
