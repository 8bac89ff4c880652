#include <openssl/evp.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "interpose/core/chacha20.hpp"

using namespace crane::interpose;

namespace {

std::vector<uint8_t> from_hex(const std::string& hex) {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
        bytes.push_back(static_cast<uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
    }
    return bytes;
}

std::vector<uint8_t> block(const std::vector<uint8_t>& key, uint32_t counter, const std::string& nonce) {
    std::vector<uint8_t> out(kChaChaBlockBytes);
    chacha20_block(key.data(), counter, from_hex(nonce).data(), out.data());
    return out;
}

/// The same stream out of libcrypto, from the block that holds byte `at`.
std::vector<uint8_t> libcrypto_stream(const std::vector<uint8_t>& key, uint64_t number, uint64_t at,
                                      size_t bytes) {
    const uint64_t first = at / kChaChaBlockBytes;
    uint8_t iv[16];
    const auto low = static_cast<uint32_t>(first), high = static_cast<uint32_t>(first >> 32);
    std::memcpy(iv, &low, 4);
    std::memcpy(iv + 4, &number, 8);
    std::memcpy(iv + 12, &high, 4);
    const size_t skip = at % kChaChaBlockBytes;
    std::vector<uint8_t> zeros(skip + bytes), out(skip + bytes);
    std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> context(EVP_CIPHER_CTX_new(),
                                                                            EVP_CIPHER_CTX_free);
    int written = 0;
    REQUIRE(EVP_EncryptInit_ex(context.get(), EVP_chacha20(), nullptr, key.data(), iv) == 1);
    REQUIRE(EVP_EncryptUpdate(context.get(), out.data(), &written, zeros.data(),
                              static_cast<int>(zeros.size())) == 1);
    return {out.begin() + static_cast<long>(skip), out.end()};
}

}  // namespace

TEST_CASE("chacha20 gives the block of RFC 8439, section 2.3.2", "[interpose]") {
    const auto key = from_hex("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    const auto expected = from_hex(
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e");
    CHECK(block(key, 1, "000000090000004a00000000") == expected);
}

TEST_CASE("chacha20 gives the blocks of RFC 8439, appendix A.1", "[interpose]") {
    const std::vector<uint8_t> zero(32, 0);
    CHECK(block(zero, 0, "000000000000000000000000") ==
          from_hex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
                   "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"));
    CHECK(block(zero, 1, "000000000000000000000000") ==
          from_hex("9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
                   "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"));
    CHECK(block(zero, 0, "000000000000000000000002") ==
          from_hex("c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
                   "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d"));
}

TEST_CASE("a random stream is libcrypto's, wherever and in whatever pieces it is read", "[interpose]") {
    std::mt19937_64 random(8439);
    for (int round = 0; round < 200; ++round) {
        std::vector<uint8_t> key(32);
        for (auto& byte : key) byte = static_cast<uint8_t>(random());
        const uint64_t number = random();
        // Every fourth lies past what the block's 32-bit counter can count.
        const uint64_t at = round % 4 == 0 ? (uint64_t{1} << 38) + random() % 4096 : random() % 100'000;
        const size_t bytes = 1 + random() % 1000;
        std::vector<uint8_t> whole(bytes), pieces(bytes);
        chacha20_stream(key.data(), number, at, whole.data(), bytes);
        for (size_t done = 0; done < bytes;) {
            const size_t step = std::min<size_t>(1 + random() % 100, bytes - done);
            chacha20_stream(key.data(), number, at + done, pieces.data() + done, step);
            done += step;
        }
        CHECK(whole == libcrypto_stream(key, number, at, bytes));
        CHECK(pieces == whole);
    }
}
