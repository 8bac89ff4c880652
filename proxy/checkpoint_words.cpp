#include "proxy/checkpoint_words.hpp"

#include <string.h>

#include "checkpoint/file_sum.hpp"

namespace crane::proxy {

namespace {

constexpr uint8_t kWordsVersion = 1;
enum class Kind : uint8_t { kAsk = 1, kOffers = 2, kRead = 3, kChunk = 4, kRefusal = 5 };

class Writer {
  public:
    explicit Writer(Kind kind) {
        number(kWordsVersion);
        number(kind);
    }
    template <typename T>
    void number(T value) {
        out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    void bytes(std::string_view text) { out_.append(text); }
    void name(const CheckpointName& name) {
        number(name.index);
        bytes(name.id);
    }
    std::string take() { return std::move(out_); }

  private:
    std::string out_;
};

/// Reads what is there; once something was missing or wrong, good() is false.
class Reader {
  public:
    explicit Reader(std::string_view text) : rest_(text) {}
    template <typename T>
    T number() {
        T value{};
        const std::string_view text = bytes(sizeof(value));
        if (good_) memcpy(&value, text.data(), sizeof(value));
        return value;
    }
    std::string_view bytes(size_t size) {
        good_ = good_ && rest_.size() >= size;
        if (!good_) return {};
        const std::string_view out = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return out;
    }
    CheckpointName name() {
        CheckpointName out;
        out.index = number<uint64_t>();
        out.id = bytes(checkpoint::kSumDigits);
        good_ = good_ && out.index != 0 && checkpoint::is_sum(out.id);
        return out;
    }
    std::string_view rest() { return bytes(rest_.size()); }
    void require(bool holds) { good_ = good_ && holds; }
    bool good() const { return good_; }
    bool done() const { return good_ && rest_.empty(); }

  private:
    std::string_view rest_;
    bool good_ = true;
};

std::string put(const AskWords& words) {
    Writer out(Kind::kAsk);
    out.number(words.round);
    out.number(words.min_index);
    return out.take();
}

std::string put(const OffersWords& words) {
    Writer out(Kind::kOffers);
    out.number(words.round);
    out.number(static_cast<uint8_t>(words.offers.size()));
    for (const Offer& one : words.offers) {
        out.name(one.name);
        out.number(one.manifest_bytes);
        out.number(one.bytes);
    }
    return out.take();
}

std::string put(const ReadWords& words) {
    Writer out(Kind::kRead);
    out.number(words.request);
    out.name(words.name);
    out.number(words.file);
    out.number(words.offset);
    out.number(words.bytes);
    return out.take();
}

std::string put(const ChunkWords& words) {
    Writer out(Kind::kChunk);
    out.number(words.request);
    out.bytes(words.bytes);
    return out.take();
}

std::string put(const RefusalWords& words) {
    Writer out(Kind::kRefusal);
    out.number(words.request);
    return out.take();
}

OffersWords read_offers(Reader& in) {
    OffersWords out;
    out.round = in.number<uint64_t>();
    const size_t count = in.number<uint8_t>();
    in.require(count <= kMaxOffers);
    for (size_t i = 0; i < count && in.good(); ++i) {
        Offer one;
        one.name = in.name();
        one.manifest_bytes = in.number<uint64_t>();
        one.bytes = in.number<uint64_t>();
        in.require(one.manifest_bytes != 0 && one.manifest_bytes <= checkpoint::kMaxManifestBytes &&
                   one.bytes <= checkpoint::kMaxCheckpointBytes);
        out.offers.push_back(std::move(one));
    }
    return out;
}

ReadWords read_read(Reader& in) {
    ReadWords out;
    out.request = in.number<uint64_t>();
    out.name = in.name();
    out.file = in.number<uint32_t>();
    out.offset = in.number<uint64_t>();
    out.bytes = in.number<uint32_t>();
    in.require(out.file <= checkpoint::kMaxCheckpointFiles && out.bytes != 0 &&
               out.bytes <= kShipChunkBytes && out.offset <= checkpoint::kMaxCheckpointBytes);
    return out;
}

ChunkWords read_chunk(Reader& in) {
    ChunkWords out;
    out.request = in.number<uint64_t>();
    out.bytes = in.rest();
    in.require(!out.bytes.empty() && out.bytes.size() <= kShipChunkBytes);
    return out;
}

}  // namespace

std::string encode(const CheckpointWords& words) {
    return std::visit([](const auto& one) { return put(one); }, words);
}

std::optional<CheckpointWords> decode_checkpoint_words(std::string_view message) {
    Reader in(message);
    in.require(in.number<uint8_t>() == kWordsVersion);
    const Kind kind = in.number<Kind>();
    CheckpointWords out;
    if (!in.good()) return std::nullopt;
    switch (kind) {
        case Kind::kAsk: {
            AskWords ask;
            ask.round = in.number<uint64_t>();
            ask.min_index = in.number<uint64_t>();
            out = ask;
            break;
        }
        case Kind::kOffers:
            out = read_offers(in);
            break;
        case Kind::kRead:
            out = read_read(in);
            break;
        case Kind::kChunk:
            out = read_chunk(in);
            break;
        case Kind::kRefusal:
            out = RefusalWords{in.number<uint64_t>()};
            break;
        default:
            return std::nullopt;
    }
    if (!in.done()) return std::nullopt;
    return out;
}

}  // namespace crane::proxy
