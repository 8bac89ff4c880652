#include "paxos/link/certificate.hpp"

#include <openssl/pem.h>
#include <openssl/rand.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <stdexcept>

#include "paxos/link/openssl.hpp"

namespace crane::paxos {
namespace {

constexpr std::string_view kUriScheme = "crane://";
constexpr int kSerialBytes = 16;

void must(bool done, const char* what) {
    if (!done) throw std::runtime_error(std::string("cannot ") + what + ": " + take_openssl_error());
}

int64_t to_seconds(const ASN1_TIME* time) {
    tm parts{};
    if (ASN1_TIME_to_tm(time, &parts) != 1) throw std::runtime_error("a date in the certificate is none");
    return timegm(&parts);
}

void add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
    must(extension != nullptr, "make an extension of a certificate");
    const bool added = X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    must(added, "add an extension to a certificate");
}

void set_serial(X509* certificate) {
    unsigned char bytes[kSerialBytes];
    must(RAND_bytes(bytes, sizeof bytes) == 1, "draw a serial number");
    bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // positive, and always as long
    BIGNUM* number = BN_bin2bn(bytes, sizeof bytes, nullptr);
    const bool set =
        number != nullptr && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
    BN_free(number);
    must(set, "set a serial number");
}

X509Ptr begin_certificate(const std::string& name, const Validity& validity, EVP_PKEY* key) {
    if (validity.not_after_s <= validity.not_before_s)
        throw std::runtime_error("a certificate cannot end before it begins");
    X509Ptr certificate(X509_new());
    must(certificate != nullptr && X509_set_version(certificate.get(), X509_VERSION_3) == 1,
         "make a certificate");
    set_serial(certificate.get());
    X509_NAME* subject = X509_get_subject_name(certificate.get());
    must(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0) == 1,
         "name a certificate");
    must(ASN1_TIME_set(X509_getm_notBefore(certificate.get()), validity.not_before_s) != nullptr &&
             ASN1_TIME_set(X509_getm_notAfter(certificate.get()), validity.not_after_s) != nullptr,
         "set a certificate's dates");
    must(X509_set_pubkey(certificate.get(), key) == 1, "set a certificate's key");
    return certificate;
}

KeyPtr make_key() {
    KeyPtr key(EVP_EC_gen("P-256"));
    must(key != nullptr, "make a key");
    return key;
}

std::string contents(BIO* bio) {
    char* text = nullptr;
    const long size = BIO_get_mem_data(bio, &text);
    return {text, static_cast<size_t>(size)};
}

PemPair to_pem(X509* certificate, EVP_PKEY* key) {
    const BioPtr out(BIO_new(BIO_s_mem())), secret(BIO_new(BIO_s_secmem()));
    must(out != nullptr && PEM_write_bio_X509(out.get(), certificate) == 1, "write a certificate");
    must(secret != nullptr &&
             PEM_write_bio_PKCS8PrivateKey(secret.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
         "write a key");
    return {contents(out.get()), contents(secret.get())};
}

// The name by which Crane knows the holder. Empty: none, or more than one.
std::string crane_uri(X509* certificate) {
    auto* names =
        static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
    std::string found;
    int count = 0;
    for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
        const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI) continue;
        const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
        std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                         static_cast<size_t>(ASN1_STRING_length(uri)));
        if (!text.starts_with(kUriScheme)) continue;
        found = std::move(text);
        ++count;
    }
    GENERAL_NAMES_free(names);
    return count == 1 ? found : "";
}

int no_passphrase(char*, int, int, void*) {
    return -1;
}

}  // namespace

bool usable_cluster_name(std::string_view cluster) {
    const auto usable = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
               c == '.' || c == '_';
    };
    return !cluster.empty() && cluster.size() <= kMaxClusterNameBytes &&
           std::all_of(cluster.begin(), cluster.end(), usable);
}

OperatorRole role_named(std::string_view name) {
    return name == "read"      ? OperatorRole::kRead
           : name == "operate" ? OperatorRole::kOperate
                               : OperatorRole::kNone;
}

std::string to_uri(const Identity& identity) {
    const std::string cluster = std::string(kUriScheme) + identity.cluster;
    if (identity.role != OperatorRole::kNone)
        return cluster + (identity.role == OperatorRole::kRead ? "/read/" : "/operate/") + identity.name;
    return cluster + (identity.replica == kNoReplica ? "" : "/" + std::to_string(identity.replica));
}

bool parse_uri(std::string_view uri, Identity& identity) {
    if (!uri.starts_with(kUriScheme)) return false;
    const std::string_view rest = uri.substr(kUriScheme.size());
    const size_t slash = rest.find('/');
    Identity read{std::string(rest.substr(0, slash)), kNoReplica};
    if (!usable_cluster_name(read.cluster)) return false;
    if (slash != std::string_view::npos) {
        const std::string_view number = rest.substr(slash + 1);
        const size_t name = number.find('/');
        if (name != std::string_view::npos) read.role = role_named(number.substr(0, name));
        if (read.role != OperatorRole::kNone) {
            read.name = number.substr(name + 1);
            if (!usable_cluster_name(read.name)) return false;
        } else {
            std::from_chars(number.data(), number.data() + number.size(), read.replica);
            if (read.replica == kNoReplica || read.replica > kMaxReplicaId) return false;
        }
    }
    if (to_uri(read) != uri) return false;  // signs, leading zeros, more behind the number
    identity = std::move(read);
    return true;
}

PemPair make_authority(const std::string& cluster, const Validity& validity) {
    if (!usable_cluster_name(cluster))
        throw std::runtime_error("\"" + cluster + "\" cannot name a cluster in a certificate");
    const KeyPtr key = make_key();
    const X509Ptr certificate = begin_certificate("Crane cluster " + cluster, validity, key.get());
    X509* const own = certificate.get();
    must(X509_set_issuer_name(own, X509_get_subject_name(own)) == 1, "name an issuer");
    add_extension(own, own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
    add_extension(own, own, NID_key_usage, "critical,keyCertSign,cRLSign");
    add_extension(own, own, NID_subject_key_identifier, "hash");
    add_extension(own, own, NID_subject_alt_name, "URI:" + to_uri({cluster, kNoReplica}));
    must(X509_sign(own, key.get(), EVP_sha256()) > 0, "sign a certificate");
    return to_pem(own, key.get());
}

namespace {

/// `purpose` is of the extended key usage.
PemPair issue(const PemPair& authority, Identity holder, const std::string& subject, const char* purpose,
              const Validity& validity) {
    const X509Ptr issuer = next_certificate(memory_bio(authority.certificate).get());
    const KeyPtr issuer_key = read_key(memory_bio(authority.key).get());
    if (issuer == nullptr) throw std::runtime_error("the authority's certificate is none");
    if (issuer_key == nullptr) throw std::runtime_error("the authority's key is none, or has a passphrase");
    if (X509_check_private_key(issuer.get(), issuer_key.get()) != 1)
        throw std::runtime_error("the authority's key does not belong to its certificate");
    const CertificateInfo info = inspect(issuer.get());
    if (!info.authority || info.identity.cluster.empty())
        throw std::runtime_error("the authority's certificate is not one made by crane ca init");
    if (validity.not_after_s > info.validity.not_after_s)
        throw std::runtime_error("the authority's own certificate ends on " +
                                 utc_text(info.validity.not_after_s) + ", before the one to be made");
    holder.cluster = info.identity.cluster;
    const KeyPtr key = make_key();
    const X509Ptr certificate =
        begin_certificate("Crane cluster " + holder.cluster + " " + subject, validity, key.get());
    X509* const own = certificate.get();
    must(X509_set_issuer_name(own, X509_get_subject_name(issuer.get())) == 1, "name an issuer");
    add_extension(own, issuer.get(), NID_basic_constraints, "critical,CA:FALSE");
    add_extension(own, issuer.get(), NID_key_usage, "critical,digitalSignature");
    add_extension(own, issuer.get(), NID_ext_key_usage, purpose);
    add_extension(own, issuer.get(), NID_subject_key_identifier, "hash");
    add_extension(own, issuer.get(), NID_authority_key_identifier, "keyid");
    add_extension(own, issuer.get(), NID_subject_alt_name, "URI:" + to_uri(holder));
    must(X509_sign(own, issuer_key.get(), EVP_sha256()) > 0, "sign a certificate");
    return to_pem(own, key.get());
}

}  // namespace

PemPair issue_certificate(const PemPair& authority, ReplicaId replica, const Validity& validity) {
    if (replica == kNoReplica || replica > kMaxReplicaId)
        throw std::runtime_error("replica id " + std::to_string(replica) + " is out of range");
    return issue(authority, {"", replica}, "replica " + std::to_string(replica), "serverAuth,clientAuth",
                 validity);
}

PemPair issue_operator_certificate(const PemPair& authority, OperatorRole role, const std::string& name,
                                   const Validity& validity) {
    if (role == OperatorRole::kNone) throw std::runtime_error("an operator has the role read or operate");
    if (!usable_cluster_name(name))
        throw std::runtime_error("\"" + name +
                                 "\" cannot name an operator in a certificate: up to 64 letters, "
                                 "digits, '-', '.' and '_'");
    return issue(authority, {"", kNoReplica, role, name}, "operator " + name, "clientAuth", validity);
}

CertificateInfo inspect(X509* certificate) {
    CertificateInfo info;
    info.authority = X509_check_ca(certificate) == 1;
    info.uri = crane_uri(certificate);
    if (!parse_uri(info.uri, info.identity)) info.uri.clear();
    info.validity = {to_seconds(X509_get0_notBefore(certificate)),
                     to_seconds(X509_get0_notAfter(certificate))};
    const BioPtr text(BIO_new(BIO_s_mem()));
    if (text != nullptr)
        X509_NAME_print_ex(text.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
    info.subject = contents(text.get());
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    must(X509_digest(certificate, EVP_sha256(), digest, &size) == 1, "hash a certificate");
    for (unsigned i = 0; i < size; ++i) {
        char pair[4];
        std::snprintf(pair, sizeof pair, "%s%02X", i > 0 ? ":" : "", digest[i]);
        info.fingerprint += pair;
    }
    return info;
}

CertificateInfo inspect_certificate(const std::string& pem) {
    const X509Ptr certificate = next_certificate(memory_bio(pem).get());
    if (certificate == nullptr) throw std::runtime_error("no certificate in PEM");
    return inspect(certificate.get());
}

std::string utc_text(int64_t seconds) {
    const time_t time = seconds;
    tm parts{};
    gmtime_r(&time, &parts);
    char text[64];
    return {text, strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

X509Ptr next_certificate(BIO* bio) {
    X509Ptr certificate(PEM_read_bio_X509(bio, nullptr, no_passphrase, nullptr));
    ERR_clear_error();
    return certificate;
}

KeyPtr read_key(BIO* bio) {
    KeyPtr key(PEM_read_bio_PrivateKey(bio, nullptr, no_passphrase, nullptr));
    ERR_clear_error();
    return key;
}

BioPtr memory_bio(const std::string& text) {
    BioPtr bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    if (bio == nullptr) throw std::bad_alloc();
    return bio;
}

std::string take_openssl_error() {
    const unsigned long code = ERR_get_error();
    const char* const reason = ERR_reason_error_string(code);
    std::string text = reason != nullptr ? reason : code != 0 ? "error " + std::to_string(code) : "no reason";
    ERR_clear_error();
    return text;
}

}  // namespace crane::paxos
