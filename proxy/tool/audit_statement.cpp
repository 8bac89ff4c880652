#include "proxy/tool/audit_statement.hpp"

#include <errno.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "paxos/link/openssl.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using nlohmann::json;
using paxos::BioPtr;
using paxos::KeyPtr;
using paxos::X509Ptr;

namespace {

using DigestPtr = std::unique_ptr<EVP_MD_CTX, paxos::OpensslFree<EVP_MD_CTX_free>>;

void must(bool done, const std::string& what) {
    if (!done) throw std::runtime_error(what + ": " + paxos::take_openssl_error());
}

/// Ed25519 hashes by itself.
const EVP_MD* digest_for(EVP_PKEY* key) {
    return EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519 ? nullptr : EVP_sha256();
}

const unsigned char* bytes_of(const std::string& text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

std::string contents(BIO* bio) {
    char* text = nullptr;
    const long size = BIO_get_mem_data(bio, &text);
    return {text, static_cast<size_t>(size)};
}

std::string to_base64(const std::string& raw) {
    std::string out(4 * ((raw.size() + 2) / 3) + 1, '\0');
    const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), bytes_of(raw),
                                     static_cast<int>(raw.size()));
    out.resize(static_cast<size_t>(size));
    return out;
}

/// Empty: it is none.
std::string from_base64(const std::string& text) {
    std::string out(text.size(), '\0');
    const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()), bytes_of(text),
                                     static_cast<int>(text.size()));
    const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
    if (size < 0 || static_cast<size_t>(size) < padding) return "";
    out.resize(static_cast<size_t>(size) - padding);
    return out;
}

std::string public_pem(EVP_PKEY* key) {
    const BioPtr out(BIO_new(BIO_s_mem()));
    must(out != nullptr && PEM_write_bio_PUBKEY(out.get(), key) == 1, "cannot write a public key");
    return contents(out.get());
}

KeyPtr public_key(const std::string& pem) {
    const BioPtr in = paxos::memory_bio(pem);
    KeyPtr key(PEM_read_bio_PUBKEY(in.get(), nullptr, nullptr, nullptr));
    ERR_clear_error();
    return key;
}

void make_own_key(const fs::path& secret, const fs::path& open) {
    const KeyPtr key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
    must(key != nullptr, "cannot make a key");
    const BioPtr out(BIO_new(BIO_s_secmem()));
    must(out != nullptr &&
             PEM_write_bio_PKCS8PrivateKey(out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1,
         "cannot write a key");
    replace_file(open, public_pem(key.get()));
    replace_file(secret, contents(out.get()), 0600);
}

/// The key that it was signed with, if one of these authorities has signed for it by then.
KeyPtr key_by_authority(const std::string& certificate, const std::string& authority, int64_t when_s,
                        std::string& cluster, std::string& signer) {
    const X509Ptr shown = paxos::next_certificate(paxos::memory_bio(certificate).get());
    if (shown == nullptr) throw std::runtime_error("it brings no certificate along");
    const paxos::StorePtr store(X509_STORE_new());
    const BioPtr all = paxos::memory_bio(authority);
    for (X509Ptr one; (one = paxos::next_certificate(all.get())) != nullptr;)
        must(X509_STORE_add_cert(store.get(), one.get()) == 1, "cannot take the authority");
    const paxos::StoreContextPtr context(X509_STORE_CTX_new());
    must(context != nullptr && X509_STORE_CTX_init(context.get(), store.get(), shown.get(), nullptr) == 1,
         "cannot check a certificate");
    X509_STORE_CTX_set_depth(context.get(), 0);
    X509_STORE_CTX_set_time(context.get(), 0, when_s);  // it need not be valid today
    const bool good = X509_verify_cert(context.get()) == 1;
    const std::string why = X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
    ERR_clear_error();
    if (!good) throw std::runtime_error("its certificate is not one of this authority's: " + why);
    const paxos::CertificateInfo info = paxos::inspect(shown.get());
    cluster = info.identity.cluster;
    signer = info.uri;
    return KeyPtr(X509_get_pubkey(shown.get()));
}

}  // namespace

std::string read_small_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw std::runtime_error(path + ": " + strerror(errno));
    std::string text(kMaxStatementBytes + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(in.gcount()));
    if (text.size() > kMaxStatementBytes) throw std::runtime_error(path + " is too large to be it");
    return text;
}

void replace_file(const std::string& path, const std::string& text, unsigned mode) {
    const std::string fresh = path + ".new";
    unlink(fresh.c_str());
    const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) throw std::runtime_error("cannot write " + fresh + ": " + strerror(errno));
    const bool written =
        write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
    const int error = errno;
    close(fd);
    if (!written || rename(fresh.c_str(), path.c_str()) != 0) {
        const std::string why = strerror(written ? errno : error);
        unlink(fresh.c_str());
        throw std::runtime_error("cannot write " + path + ": " + why);
    }
    const std::string folder = fs::absolute(path).parent_path();
    const int dir = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0) {
        fsync(dir);
        close(dir);
    }
}

SigningKey signing_key(const Config& config, const std::string& own_dir) {
    if (config.tls.configured())
        return {read_small_file(config.tls.key), read_small_file(config.tls.certificate)};
    const fs::path secret = fs::path(own_dir) / "audit.key", open = fs::path(own_dir) / "audit.pub";
    std::error_code error;
    if (!fs::exists(secret, error)) make_own_key(secret, open);
    return {read_small_file(secret), ""};
}

std::string sign_statement(const json& statement, const SigningKey& key) {
    const std::string line = statement.dump(-1, ' ', false, json::error_handler_t::replace);
    const KeyPtr secret = paxos::read_key(paxos::memory_bio(key.key).get());
    if (secret == nullptr) throw std::runtime_error("the key to sign with is none, or has a passphrase");
    const DigestPtr context(EVP_MD_CTX_new());
    size_t size = 0;
    must(context != nullptr &&
             EVP_DigestSignInit(context.get(), nullptr, digest_for(secret.get()), nullptr, secret.get()) ==
                 1 &&
             EVP_DigestSign(context.get(), nullptr, &size, bytes_of(line), line.size()) == 1,
         "cannot sign");
    std::string raw(size, '\0');
    must(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(raw.data()), &size, bytes_of(line),
                        line.size()) == 1,
         "cannot sign");
    raw.resize(size);
    json signature = {{"signature", to_base64(raw)}};
    if (key.certificate.empty())
        signature["public_key"] = public_pem(secret.get());
    else
        signature["certificate"] = key.certificate;
    return line + "\n" + signature.dump() + "\n";
}

CheckedStatement check_statement(const std::string& text, const std::string& authority) {
    const size_t end = text.find('\n');
    const std::string line = text.substr(0, end);
    const json stated = json::parse(line, nullptr, false);
    const json signature =
        end == std::string::npos ? json() : json::parse(text.substr(end + 1), nullptr, false);
    if (!stated.is_object() || !signature.is_object() || !signature.contains("signature"))
        throw std::runtime_error("it is no statement of crane audit");
    CheckedStatement out{line, ""};
    std::string cluster;
    KeyPtr key = public_key(authority);
    const bool by_key = key != nullptr;
    if (!by_key)
        key = key_by_authority(signature.value("certificate", ""), authority,
                               stated.value("audited_s", int64_t{0}), cluster, out.signer);
    const std::string raw = from_base64(signature.value("signature", ""));
    const DigestPtr context(EVP_MD_CTX_new());
    const bool good =
        context != nullptr && key != nullptr &&
        EVP_DigestVerifyInit(context.get(), nullptr, digest_for(key.get()), nullptr, key.get()) == 1 &&
        EVP_DigestVerify(context.get(), bytes_of(raw), raw.size(), bytes_of(line), line.size()) == 1;
    ERR_clear_error();
    if (!good)
        throw std::runtime_error("its signature is not good: it was changed, or signed with another key");
    if (!by_key && cluster != stated.value("cluster", ""))
        throw std::runtime_error("it is of cluster " + stated.value("cluster", "") +
                                 ", and signed by one of cluster " + cluster);
    return out;
}

}  // namespace crane::proxy
