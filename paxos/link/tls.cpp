#include "paxos/link/tls.hpp"

#include <fcntl.h>
#include <openssl/pem.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "paxos/link/openssl.hpp"
#include "paxos/link/tls_stream.hpp"

namespace crane::paxos {
namespace {

constexpr size_t kMaxFileBytes = 1u << 20;
constexpr long kMaxPeerChainBytes = 16u << 10;  // what a stranger may make us read as certificates
constexpr size_t kMaxAuthorities = 16;
constexpr mode_t kModeOfOthers = 0077;

int64_t now_seconds() {
    return time(nullptr);
}

[[noreturn]] void refuse(const char* setting, const std::string& path, const std::string& what) {
    throw std::runtime_error("tls." + std::string(setting) + " = \"" + path + "\": " + what);
}

// For errors of reading; `secret`: nobody but the owner may have access.
std::string read_file(const char* setting, const std::string& path, bool secret) {
    if (path.empty())
        throw std::runtime_error("tls." + std::string(setting) +
                                 " is missing: ca, certificate and key are needed, all three");
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        refuse(setting, path, std::string(std::strerror(errno)) + ": crane ca issue makes it, see crane(1)");
    struct stat found {};
    std::string text(kMaxFileBytes + 1, '\0');
    ssize_t got = -1;
    const bool known = fstat(fd, &found) == 0;
    if (known && S_ISREG(found.st_mode)) got = pread(fd, text.data(), text.size(), 0);
    close(fd);
    if (!known || !S_ISREG(found.st_mode)) refuse(setting, path, "is no regular file");
    if (secret && (found.st_mode & kModeOfOthers) != 0)
        refuse(setting, path, "others than its owner have access to this private key: chmod 600 it");
    if (got < 0) refuse(setting, path, "cannot be read");
    if (static_cast<size_t>(got) > kMaxFileBytes) refuse(setting, path, "is too large to be it");
    text.resize(static_cast<size_t>(got));
    return text;
}

SslContextPtr make_context() {
    SslContextPtr context(SSL_CTX_new(TLS_method()));
    if (context == nullptr) throw std::runtime_error("cannot set up TLS: " + take_openssl_error());
    SSL_CTX* const made = context.get();
    const bool set = SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION) == 1 &&
                     SSL_CTX_set_max_proto_version(made, TLS1_3_VERSION) == 1 &&
                     SSL_CTX_set_num_tickets(made, 0) == 1;
    if (!set) throw std::runtime_error("cannot set up TLS 1.3: " + take_openssl_error());
    SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(made, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(made, SSL_MODE_NO_AUTO_CHAIN);  // the other side has the authority's certificate
    SSL_CTX_set_max_cert_list(made, kMaxPeerChainBytes);
    SSL_CTX_set_verify(made, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, on_certificate);
    SSL_CTX_set_verify_depth(made, 0);  // no authorities between the cluster's and a replica
    SSL_CTX_set_default_passwd_cb(made, [](char*, int, int, void*) { return -1; });
    return context;
}

void trust_authorities(SSL_CTX* context, const std::string& path, const std::string& text) {
    const BioPtr bio = memory_bio(text);
    size_t count = 0;
    for (X509Ptr one; (one = next_certificate(bio.get())) != nullptr; ++count) {
        if (count == kMaxAuthorities) refuse("ca", path, "has too many certificates");
        if (X509_check_ca(one.get()) != 1)
            refuse("ca", path,
                   "\"" + inspect(one.get()).subject + "\" is not an authority's certificate: take ca.crt");
        if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one.get()) != 1)
            refuse("ca", path, take_openssl_error());
    }
    if (count == 0) refuse("ca", path, "has no certificate in PEM: take the ca.crt that crane ca init made");
}

// Would a peer that trusts the same authorities accept it?
void check_chain(SSL_CTX* context, const std::string& path, X509* certificate) {
    const StoreContextPtr store(X509_STORE_CTX_new());
    if (store == nullptr ||
        X509_STORE_CTX_init(store.get(), SSL_CTX_get_cert_store(context), certificate, nullptr) != 1)
        refuse("certificate", path, take_openssl_error());
    X509_STORE_CTX_set_depth(store.get(), 0);
    X509_STORE_CTX_set_default(store.get(), "ssl_server");
    const bool good = X509_verify_cert(store.get()) == 1;
    const int error = X509_STORE_CTX_get_error(store.get());
    ERR_clear_error();
    if (!good)
        refuse("certificate", path,
               certificate_problem(error, X509_STORE_CTX_get_error_depth(store.get()),
                                   X509_STORE_CTX_get_current_cert(store.get())));
    if (X509_check_purpose(certificate, X509_PURPOSE_SSL_CLIENT, 0) != 1)
        refuse("certificate", path, "is not one for clients, too: make it with crane ca issue");
}

std::string display(const Identity& identity) {
    if (identity.cluster.empty()) return "nobody of Crane's";
    if (identity.role != OperatorRole::kNone)
        return "operator " + identity.name + " of cluster " + identity.cluster;
    if (identity.replica == kNoReplica) return "the authority of cluster " + identity.cluster;
    return "replica " + std::to_string(identity.replica) + " of cluster " + identity.cluster;
}

}  // namespace

struct TlsContext::Loaded {
    SslContextPtr context;
    CertificateInfo own;
    int64_t authority_ends_s = 0;

    Loaded(const TlsFiles& files, const Identity& self) : context(make_context()) {
        const std::string authorities = read_file("ca", files.ca, false);
        trust_authorities(context.get(), files.ca, authorities);
        const std::string text = read_file("certificate", files.certificate, false);
        const X509Ptr certificate = next_certificate(memory_bio(text).get());
        if (certificate == nullptr) refuse("certificate", files.certificate, "has no certificate in PEM");
        const KeyPtr key = read_key(memory_bio(read_file("key", files.key, true)).get());
        if (key == nullptr) refuse("key", files.key, "has no private key in PEM, or one with a passphrase");
        own = inspect(certificate.get());
        if (own.identity != self)
            refuse("certificate", files.certificate, "it is " + identity_mismatch(own.identity, self));
        check_chain(context.get(), files.certificate, certificate.get());
        authority_ends_s = paxos::authority_ends_s(text, authorities);
        if (SSL_CTX_use_certificate(context.get(), certificate.get()) != 1)
            refuse("certificate", files.certificate, take_openssl_error());
        if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1)
            refuse("key", files.key,
                   "does not belong to " + files.certificate + ": install both from one crane ca issue");
    }
};

// Tells one state of the files from another.
struct TlsContext::Stamp {
    std::array<struct stat, 3> files{};
    explicit Stamp(const TlsFiles& paths) {
        const std::string* const names[] = {&paths.ca, &paths.certificate, &paths.key};
        for (size_t i = 0; i < files.size(); ++i)
            if (stat(names[i]->c_str(), &files[i]) != 0) files[i] = {};
    }
    bool operator==(const Stamp& other) const {
        for (size_t i = 0; i < files.size(); ++i) {
            const struct stat &a = files[i], &b = other.files[i];
            if (a.st_ino != b.st_ino || a.st_dev != b.st_dev || a.st_size != b.st_size ||
                a.st_mode != b.st_mode || a.st_ctim.tv_sec != b.st_ctim.tv_sec ||
                a.st_ctim.tv_nsec != b.st_ctim.tv_nsec)
                return false;
        }
        return true;
    }
};

TlsContext::TlsContext(TlsFiles files, Identity self)
    : files_(std::move(files)),
      self_(std::move(self)),
      stamp_(std::make_unique<Stamp>(files_)),
      loaded_(std::make_unique<Loaded>(files_, self_)) {
    loads_ = 1;
}

TlsContext::~TlsContext() = default;

void TlsContext::refresh() {
    const int64_t time = now_seconds();
    auto now = std::make_unique<Stamp>(files_);
    const bool changed = !(*now == *stamp_);
    // What was refused may do later without a change, as a certificate that is not valid yet.
    if (changed || (!problem_.empty() && time != tried_s_)) {
        stamp_ = std::move(now);
        tried_s_ = time;
        reload(changed);
    }
    if (time < next_warning_s_) return;
    next_warning_s_ = time + kDaySeconds;
    const std::string warning = renewal_warning(time);
    if (!warning.empty()) spdlog::warn("{}", warning);
}

void TlsContext::reload(bool changed) {
    try {
        loaded_ = std::make_unique<Loaded>(files_, self_);
    } catch (const std::runtime_error& error) {
        if (changed || problem_ != error.what())
            spdlog::error("the changed certificate files are not used: {}", error.what());
        problem_ = error.what();
        return;
    }
    problem_.clear();
    ++loads_;
    next_warning_s_ = 0;
    spdlog::info("the certificate has been read again; it is valid until {}",
                 utc_text(own().validity.not_after_s));
}

std::unique_ptr<Stream> TlsContext::secure(std::unique_ptr<Stream> below, bool client) const {
    return make_tls_stream(loaded_->context.get(), std::move(below), client);
}

const CertificateInfo& TlsContext::own() const {
    return loaded_->own;
}

TlsStanding TlsContext::standing() const {
    const int64_t own_s = own().validity.not_after_s, authority_s = loaded_->authority_ends_s;
    return {authority_s == 0 ? own_s : std::min(own_s, authority_s), authority_s, problem_};
}

std::string TlsContext::renewal_warning(int64_t now_s) const {
    const int64_t ends_s = standing().ends_s;
    const bool authority = ends_s == loaded_->authority_ends_s;
    const int64_t left_s = ends_s - now_s;
    if (left_s >= kRenewalWarningDays * kDaySeconds) return "";
    const std::string whose =
        authority ? "the authority's certificate in " + files_.ca : "this replica's certificate";
    const std::string advice =
        authority ? ": no replica's outlives it, however new: put a second authority beside it (\"When the "
                    "authority ends\" in deployment.md)"
                  : ": make a new one with crane ca issue --replica " + std::to_string(self_.replica) +
                        " and install it over the old; no restart is needed";
    if (left_s <= 0) return whose + " expired on " + utc_text(ends_s) + "; peers refuse new links" + advice;
    return whose + " expires on " + utc_text(ends_s) + ", in " + std::to_string(left_s / kDaySeconds) +
           " days" + advice;
}

int64_t authority_ends_s(const std::string& certificate, const std::string& authorities) {
    const X509Ptr signed_one = next_certificate(memory_bio(certificate).get());
    const BioPtr bio = memory_bio(authorities);
    int64_t ends_s = 0;
    for (X509Ptr one; signed_one != nullptr && (one = next_certificate(bio.get())) != nullptr;) {
        if (X509_check_issued(one.get(), signed_one.get()) == X509_V_OK &&
            X509_verify(signed_one.get(), X509_get0_pubkey(one.get())) == 1)
            ends_s = std::max(ends_s, inspect(one.get()).validity.not_after_s);
    }
    ERR_clear_error();
    return ends_s;
}

std::string identity_mismatch(const Identity& shown, const Identity& expected) {
    if (shown == expected) return "";
    const std::string what =
        "the certificate of " + display(shown) + ", where that of " + display(expected) + " was expected";
    if (shown.cluster == expected.cluster)
        return what + ": install on each host what crane ca issue --replica N made for its replica";
    return what +
           ": is the peer's address that of another cluster, or crane ca init's --cluster not the "
           "cluster_id?";
}

std::string plaintext_refusal(const std::vector<PeerAddress>& members, const std::string& cluster) {
    const PeerAddress* far = nullptr;
    for (const PeerAddress& member : members)
        if (far == nullptr && !is_loopback(member.host)) far = &member;
    if (far == nullptr) return "";
    std::string text =
        "replica " + std::to_string(far->id) + "'s peer address " + far->host +
        " is not on loopback, and no [tls] is configured: replicas on different hosts speak TLS "
        "only. Make their certificates, on one host:\n"
        "    crane ca init --dir /root/crane-ca --cluster " +
        cluster + "\n";
    for (const PeerAddress& member : members)
        text += "    crane ca issue --dir /root/crane-ca --replica " + std::to_string(member.id) + "\n";
    return text +
           "copy /root/crane-ca/replica-N to /etc/crane/tls on the host of replica N, and add to "
           "craned.toml:\n"
           "    [tls]\n"
           "    ca = \"/etc/crane/tls/ca.crt\"\n"
           "    certificate = \"/etc/crane/tls/replica.crt\"\n"
           "    key = \"/etc/crane/tls/replica.key\"";
}

}  // namespace crane::paxos
