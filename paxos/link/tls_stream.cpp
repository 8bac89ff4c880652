#include "paxos/link/tls_stream.hpp"

#include <openssl/sslerr.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/check.hpp"
#include "paxos/link/openssl.hpp"

namespace crane::paxos {
namespace {

constexpr size_t kRawBytes = 64u << 10;         // read from the socket at a time
constexpr size_t kMaxRecordBytes = 16u << 10;   // TLS allows no more
constexpr size_t kMaxUnsentBytes = 256u << 10;  // encrypted, and not yet taken by the socket

// OpenSSL's words for an alert are those of the protocol; the other end's log has ours.
std::string alert_text(int reason) {
    switch (reason) {
        case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
            return "this replica's certificate has expired, or is not valid yet, by its clock";
        case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
            return "this replica's certificate is not signed by the authority that is trusted there";
        case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
            return "it wants a certificate of this replica";
        default:
            return "";
    }
}

std::string protocol_error() {
    const unsigned long code = ERR_peek_error();
    const int reason = ERR_GET_REASON(code);
    const bool ssl = ERR_GET_LIB(code) == ERR_LIB_SSL;
    const std::string words = take_openssl_error();
    if (ssl && (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
                reason == SSL_R_UNEXPECTED_MESSAGE || reason == SSL_R_UNSUPPORTED_PROTOCOL))
        return "the other side does not speak TLS 1.3 (" + words + "): is [tls] in its craned.toml, too?";
    if (ssl && reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        return "the other side shows no certificate: only replicas may connect here";
    if (ssl && reason > SSL_AD_REASON_OFFSET) {
        const std::string known = alert_text(reason);
        return "the other side refused: " + (known.empty() ? words : known) + "; its log says more";
    }
    return "TLS: " + words;
}

class TlsStream : public Stream {
  public:
    TlsStream(SSL_CTX* context, std::unique_ptr<Stream> below, bool client)
        : below_(std::move(below)), ssl_(SSL_new(context)), raw_(std::make_unique<char[]>(kRawBytes)) {
        BIO* const bio = BIO_new(method());
        if (ssl_ == nullptr || bio == nullptr) {
            BIO_free(bio);
            throw std::bad_alloc();
        }
        BIO_set_data(bio, this);
        BIO_set_init(bio, 1);
        SSL_set_bio(ssl_.get(), bio, bio);  // takes it
        SSL_set_app_data(ssl_.get(), this);
        client ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
    }

    bool handshake() override {
        while (!done_) {
            ERR_clear_error();
            const int result = SSL_do_handshake(ssl_.get());
            if (result == 1) return accept_peer();
            if (SSL_get_error(ssl_.get(), result) != SSL_ERROR_WANT_READ) {
                broken(certificate_refusal_.empty() ? protocol_error() : certificate_refusal_);
                push();  // the alert that tells the other side
                errno = EPROTO;
                return false;
            }
            if (!push() && errno != EAGAIN) return false;
            const ssize_t got = fill();
            if (got == 0) {
                broken("closed by the other side within the TLS handshake");
                errno = EPROTO;
            }
            if (got <= 0) return false;
        }
        return true;
    }

    ssize_t read(void* buffer, size_t size) override {
        size_t total = 0;
        bool drained = false;
        unread_ = false;
        while (total < size && !broken_) {
            size_t got = 0;
            ERR_clear_error();
            const int result =
                SSL_read_ex(ssl_.get(), static_cast<char*>(buffer) + total, size - total, &got);
            if (result == 1) {
                total += got;
                continue;
            }
            const int kind = SSL_get_error(ssl_.get(), result);
            if (kind == SSL_ERROR_ZERO_RETURN) return static_cast<ssize_t>(total);
            if (kind != SSL_ERROR_WANT_READ) {
                broken(protocol_error());
                break;
            }
            if (drained) break;
            const ssize_t raw = fill();
            if (raw == 0) return static_cast<ssize_t>(total);
            if (raw < 0 && total == 0) return -1;
            if (raw < 0) break;
            drained = static_cast<size_t>(raw) < kRawBytes;
        }
        unread_ = total > 0 && (total == size || broken_);
        if (total > 0) return static_cast<ssize_t>(total);
        errno = broken_ ? EPROTO : EAGAIN;
        return -1;
    }

    ssize_t write(const iovec* pieces, int count) override {
        size_t taken = 0;
        if (!broken_ && done_) taken = encrypt(pieces, count);
        if (broken_) {
            errno = EPROTO;
            return -1;
        }
        if (!push() && (errno != EAGAIN || taken == 0)) return -1;
        return static_cast<ssize_t>(taken);
    }

    void finish() override {
        if (!done_ || broken_) return;
        ERR_clear_error();
        SSL_shutdown(ssl_.get());
        push();
        ERR_clear_error();
    }

    int fd() const override { return below_->fd(); }
    bool has_unsent() const override { return unsent_start_ < unsent_.size(); }
    bool has_unread() const override { return unread_; }
    const Identity* peer() const override { return done_ ? &peer_ : nullptr; }
    std::string describe(int error) const override {
        return error == EPROTO && !reason_.empty() ? reason_ : std::strerror(error);
    }
    void refuse_certificate(std::string reason) {
        if (certificate_refusal_.empty()) certificate_refusal_ = std::move(reason);
    }

  private:
    static const BIO_METHOD* method();

    // Its bytes leave together with the user's first.
    bool accept_peer() {
        const X509* const shown = SSL_get0_peer_certificate(ssl_.get());
        CRANE_CHECK(shown != nullptr && SSL_get_verify_result(ssl_.get()) == X509_V_OK);
        try {
            peer_ = inspect(const_cast<X509*>(shown)).identity;
        } catch (const std::runtime_error& error) {
            broken(error.what());
            errno = EPROTO;
            return false;
        }
        done_ = true;
        unread_ = raw_start_ < raw_end_;
        return true;
    }

    size_t encrypt(const iovec* pieces, int count) {
        size_t taken = 0;
        size_t gathered = 0;
        char record[kMaxRecordBytes];
        for (int i = 0; i < count && !broken_; ++i) {
            const char* at = static_cast<const char*>(pieces[i].iov_base);
            size_t left = pieces[i].iov_len;
            while (left > 0 && !broken_ && unsent_.size() - unsent_start_ + gathered < kMaxUnsentBytes) {
                const size_t part = std::min(left, kMaxRecordBytes - gathered);
                std::memcpy(record + gathered, at, part);
                gathered += part, at += part, left -= part, taken += part;
                if (gathered < kMaxRecordBytes) continue;
                write_record(record, gathered);
                gathered = 0;
            }
            if (left > 0) break;
        }
        if (gathered > 0) write_record(record, gathered);
        return taken;
    }

    void write_record(const char* bytes, size_t size) {
        size_t written = 0;
        ERR_clear_error();
        if (SSL_write_ex(ssl_.get(), bytes, size, &written) != 1 || written != size) broken(protocol_error());
    }

    // All that waits, to the socket. False with errno when some is left.
    bool push() {
        while (has_unsent()) {
            const iovec piece{unsent_.data() + unsent_start_, unsent_.size() - unsent_start_};
            const ssize_t sent = below_->write(&piece, 1);
            if (sent < 0 && errno == EINTR) continue;
            if (sent < 0) return false;
            unsent_start_ += static_cast<size_t>(sent);
        }
        unsent_.clear();
        unsent_start_ = 0;
        return true;
    }

    // As recv. Only when OpenSSL has taken all that came before.
    ssize_t fill() {
        CRANE_CHECK(raw_start_ == raw_end_);
        const ssize_t got = below_->read(raw_.get(), kRawBytes);
        raw_start_ = 0;
        raw_end_ = static_cast<size_t>(std::max<ssize_t>(got, 0));
        return got;
    }

    void broken(std::string reason) {
        broken_ = true;
        if (reason_.empty()) reason_ = std::move(reason);
    }

    // --- what OpenSSL reads and writes
    static int bio_write(BIO* bio, const char* bytes, size_t size, size_t* written) {
        auto* self = static_cast<TlsStream*>(BIO_get_data(bio));
        // Records are bounded by encrypt(); a peer that makes us answer without end is not.
        if (self->unsent_.size() - self->unsent_start_ > 2 * kMaxUnsentBytes) return 0;
        if (self->unsent_start_ > kMaxUnsentBytes) {
            self->unsent_.erase(0, self->unsent_start_);
            self->unsent_start_ = 0;
        }
        self->unsent_.append(bytes, size);
        *written = size;
        return 1;
    }
    static int bio_read(BIO* bio, char* bytes, size_t size, size_t* read) {
        auto* self = static_cast<TlsStream*>(BIO_get_data(bio));
        BIO_clear_retry_flags(bio);
        const size_t part = std::min(size, self->raw_end_ - self->raw_start_);
        if (part == 0) {
            BIO_set_retry_read(bio);
            return 0;
        }
        std::memcpy(bytes, self->raw_.get() + self->raw_start_, part);
        self->raw_start_ += part;
        *read = part;
        return 1;
    }
    static long bio_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

    const std::unique_ptr<Stream> below_;
    const SslPtr ssl_;
    const std::unique_ptr<char[]> raw_;  // from the socket, for OpenSSL
    size_t raw_start_ = 0, raw_end_ = 0;
    std::string unsent_;  // from OpenSSL, for the socket
    size_t unsent_start_ = 0;
    bool done_ = false, broken_ = false, unread_ = false;
    Identity peer_;
    std::string reason_, certificate_refusal_;
};

const BIO_METHOD* TlsStream::method() {
    static BIO_METHOD* const made = [] {
        BIO_METHOD* own = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "crane stream");
        if (own == nullptr) throw std::bad_alloc();
        BIO_meth_set_write_ex(own, bio_write);
        BIO_meth_set_read_ex(own, bio_read);
        BIO_meth_set_ctrl(own, bio_control);
        return own;
    }();
    return made;
}

std::string holder(X509* certificate) {
    try {
        const CertificateInfo info = inspect(certificate);
        return info.uri.empty() ? info.subject : info.uri;
    } catch (const std::runtime_error&) {
        return "somebody";
    }
}

}  // namespace

std::unique_ptr<Stream> make_tls_stream(SSL_CTX* context, std::unique_ptr<Stream> below, bool client) {
    return std::make_unique<TlsStream>(context, std::move(below), client);
}

int on_certificate(int accepted, X509_STORE_CTX* store) {
    if (accepted == 1) return 1;
    auto* ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    auto* stream = ssl != nullptr ? static_cast<TlsStream*>(SSL_get_app_data(ssl)) : nullptr;
    if (stream != nullptr)
        stream->refuse_certificate(certificate_problem(X509_STORE_CTX_get_error(store),
                                                       X509_STORE_CTX_get_error_depth(store),
                                                       X509_STORE_CTX_get_current_cert(store)));
    return 0;
}

std::string certificate_problem(int error, int depth, X509* certificate) {
    const std::string whose =
        certificate != nullptr ? "the certificate of " + holder(certificate) : "a certificate";
    const std::string renew =
        depth == 0 ? "make a new one (crane ca issue) and install it on its host"
                   : "it is an authority's: begin a new one (crane ca init) and issue all certificates again";
    const auto date = [&](const ASN1_TIME* time) {
        tm parts{};
        return ASN1_TIME_to_tm(time, &parts) == 1 ? utc_text(timegm(&parts))
                                                  : std::string("an unreadable date");
    };
    if (error == X509_V_ERR_CERT_HAS_EXPIRED && certificate != nullptr)
        return whose + " expired on " + date(X509_get0_notAfter(certificate)) + ": " + renew;
    if (error == X509_V_ERR_CERT_NOT_YET_VALID && certificate != nullptr)
        return whose + " is valid from " + date(X509_get0_notBefore(certificate)) +
               " on, and not yet: compare the clocks of this host and of the one where it was made";
    if (error == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY ||
        error == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN || error == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT ||
        error == X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE || error == X509_V_ERR_CERT_SIGNATURE_FAILURE)
        return whose +
               " is not signed by the authority in this replica's tls.ca: is it of another cluster? If "
               "not, issue it with the same crane ca directory as this replica's";
    return whose + ": " + X509_verify_cert_error_string(error);
}

}  // namespace crane::paxos
