// OpenSSL's handles, freed by themselves. For the files that call OpenSSL.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "paxos/link/certificate.hpp"

namespace crane::paxos {

template <auto Free>
struct OpensslFree {
    template <typename T>
    void operator()(T* handle) const {
        Free(handle);
    }
};
using X509Ptr = std::unique_ptr<X509, OpensslFree<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using BioPtr = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;
using StorePtr = std::unique_ptr<X509_STORE, OpensslFree<X509_STORE_free>>;
using StoreContextPtr = std::unique_ptr<X509_STORE_CTX, OpensslFree<X509_STORE_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, OpensslFree<SSL_free>>;
using SslContextPtr = std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>>;

/// The next certificate or the key in what is left of `bio`; null at the end, or when it is none. Never asks
/// for a passphrase.
X509Ptr next_certificate(BIO* bio);
KeyPtr read_key(BIO* bio);
BioPtr memory_bio(const std::string& text);
CertificateInfo inspect(X509* certificate);

/// The oldest error that OpenSSL has noted in this thread, in its words; all are forgotten.
std::string take_openssl_error();

}  // namespace crane::paxos
