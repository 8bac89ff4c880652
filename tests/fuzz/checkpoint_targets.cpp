// What craneds say to each other about checkpoints, and the manifests that come with them.
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "checkpoint/file_sum.hpp"
#include "proxy/checkpoint_mail.hpp"
#include "targets.hpp"

namespace crane::fuzz {

using namespace crane::proxy;

namespace {

constexpr size_t kPartBytes = 40;
constexpr uint32_t kChunk = 16;

// Of two parts, all of the same letter; with a sum that fits or does not.
std::string manifest_text(uint64_t index, bool fits) {
    checkpoint::Manifest manifest;
    manifest.index = index;
    for (const char letter : {'a', 'b'})
        manifest.files.push_back({std::string(1, letter), kPartBytes,
                                  checkpoint::sum_of(std::string(kPartBytes, fits ? letter : 'x'))});
    return checkpoint::encode_manifest(manifest);
}

// Files in memory.
class MemoryFiles final : public CheckpointFiles {
  public:
    std::vector<Offer> offers(uint64_t least) override {
        if (least > 5) throw std::runtime_error("nothing as new");
        return {{{5, std::string(checkpoint::kSumDigits, '0')}, 100, 2 * kPartBytes}};
    }
    std::string read(const ReadWords& wanted) override {
        must(wanted.bytes > 0 && wanted.bytes <= kShipChunkBytes, "a read of any size");
        if (wanted.offset > kPartBytes) throw std::runtime_error("too far");
        return std::string(wanted.bytes, 'a');
    }
    Present present() override { return {0, {}, {}}; }
    std::optional<std::vector<ArrivedPart>> resume(const CheckpointName&) override { return std::nullopt; }
    bool is_manifest(const CheckpointName& name, const std::string& text) const override {
        const checkpoint::DecodedManifest decoded = checkpoint::decode_manifest(text);
        return decoded.error.empty() && decoded.id == name.id && decoded.manifest.index == name.index;
    }
    std::vector<ArrivedPart> begin(const CheckpointName& name, const std::string& text) override {
        const checkpoint::DecodedManifest decoded = checkpoint::decode_manifest(text);
        must(decoded.error.empty() && decoded.id == name.id, "begun with another manifest");
        manifest_ = decoded.manifest;
        contents_.assign(manifest_.files.size(), "");
        std::vector<ArrivedPart> out;
        for (const auto& one : manifest_.files) out.push_back({one.name, one.bytes, 0});
        return out;
    }
    void append(size_t part, uint64_t offset, std::string_view bytes) override {
        must(part < contents_.size() && offset == contents_[part].size(), "bytes in a wrong place");
        contents_[part].append(bytes);
        must(contents_[part].size() <= manifest_.files[part].bytes, "more bytes than the manifest says");
    }
    bool check(size_t part, const checkpoint::Stop&) override {
        must(part < contents_.size(), "no such part");
        if (checkpoint::sum_of(contents_[part]) == manifest_.files[part].xxh128) return true;
        contents_[part].clear();
        return false;
    }
    void publish() override {
        for (size_t i = 0; i < contents_.size(); ++i)
            must(checkpoint::sum_of(contents_[i]) == manifest_.files[i].xxh128, "damage was published");
    }

  private:
    checkpoint::Manifest manifest_;
    std::vector<std::string> contents_;
};

// What a peer would say that means well, or almost: it answers what was last asked.
class Peer {
  public:
    void hear(const std::string& message) {
        const auto words = decode_checkpoint_words(message);
        must(words.has_value(), "something is said that cannot be read");
        must(encode(*words) == message, "what was said encodes to other bytes");
        if (const auto* ask = std::get_if<AskWords>(&*words)) ask_ = *ask;
        if (const auto* read = std::get_if<ReadWords>(&*words)) reads_.push_back(*read);
        must(reads_.size() < 10'000, "questions without bound");
    }
    std::string offer(uint8_t how) {
        text_ = manifest_text(1 + how % 8, how & 8);
        const std::string id = checkpoint::decode_manifest(text_).id;
        return encode(OffersWords{
            ask_.round, {{{1u + how % 8u, id}, text_.size() + (how & 16 ? 1 : 0), 2 * kPartBytes}}});
    }
    std::string answer(uint8_t how) {
        if (reads_.empty()) return encode(RefusalWords{how});
        const ReadWords read = reads_.front();
        reads_.pop_front();
        if (how % 16 == 15) return encode(RefusalWords{read.request});
        std::string bytes(read.bytes + (how % 16 == 14 ? 1 : 0), read.file == 1 ? 'a' : 'b');
        if (read.file == kManifestFile) bytes = text_.substr(read.offset, read.bytes);
        if (how % 16 == 13 && !bytes.empty()) bytes[0] ^= 1;
        return encode(
            ChunkWords{read.request + (how % 16 == 12 ? 1 : 0), bytes + (bytes.empty() ? "x" : "")});
    }

  private:
    AskWords ask_;
    std::deque<ReadWords> reads_;
    std::string text_;
};

}  // namespace

void fuzz_checkpoints(std::string_view bytes) {
    Input in(bytes);
    (void)checkpoint::decode_manifest(bytes);
    if (const auto words = decode_checkpoint_words(bytes))
        must(encode(*words) == bytes, "what was decoded encodes to other bytes");
    std::deque<std::pair<std::function<void()>, std::function<void()>>> jobs;
    std::map<uint32_t, Peer> peers;
    size_t said = 0, told = 0;
    CheckpointMail mail(
        std::make_shared<MemoryFiles>(),
        [&](uint32_t to, const std::string& message) {
            if (++said % 7 == 0) return false;
            peers[to].hear(message);
            return true;
        },
        [&](std::function<void()> job, std::function<void()> done) {
            jobs.emplace_back(std::move(job), std::move(done));
        },
        {[](uint64_t) {}, [&](const std::string&) { ++told; }}, {1'000'000'000, kChunk, 1});
    uint64_t now_ns = 1;
    mail.on_link(2, true);
    mail.fetch().want(3);
    for (int turns = 0; !in.empty() && turns < 512; ++turns) {
        const auto what = in.number<uint8_t>();
        const uint32_t from = 2 + (what & 1);
        if (what >> 4 == 15) mail.on_link(from, what & 2);
        if (what >> 4 == 14) mail.fetch().want(what & 7);
        if (what >> 4 == 13) mail.on_message(from, in.take(in.number<uint8_t>()));
        if (what >> 4 == 12) now_ns += uint64_t{in.number<uint8_t>()} << 28;
        if (what >> 4 == 11) mail.on_message(from, encode(AskWords{what, what & 7u}));
        if (what >> 4 == 10)
            mail.on_message(from, encode(ReadWords{what,
                                                   {5, std::string(checkpoint::kSumDigits, '0')},
                                                   what & 3u,
                                                   in.number<uint8_t>(),
                                                   kChunk}));
        if (what >> 4 == 9) mail.on_message(from, peers[from].offer(in.number<uint8_t>()));
        if (what >> 4 < 9) mail.on_message(from, peers[from].answer(what >> 1));
        must(jobs.size() <= 2, "more than one job of each side");
        for (size_t left = jobs.size(); left > 0; --left) {
            const auto [job, done] = std::move(jobs.front());
            jobs.pop_front();
            job();
            done();
        }
        mail.tick(now_ns += 1'000'000);
    }
    must(said < 40 * bytes.size() + 10'000, "words without bound");
    must(told < 20 * bytes.size() + 100, "lines in the log without bound");
}

}  // namespace crane::fuzz
