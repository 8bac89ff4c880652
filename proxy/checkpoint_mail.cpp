#include "proxy/checkpoint_mail.hpp"

namespace crane::proxy {

void CheckpointMail::on_message(uint32_t from, std::string_view message, bool offers) {
    const std::optional<CheckpointWords> words = decode_checkpoint_words(message);
    if (!words) {
        const std::string what = "replica " + std::to_string(from) +
                                 " says something about checkpoints that is not understood here: do both run "
                                 "the same version of Crane?";
        if (refused_.is_news(what, now_ns_ / 1'000'000)) tell_(what);
        return;
    }
    const auto* ask = std::get_if<AskWords>(&*words);
    const auto* read = std::get_if<ReadWords>(&*words);
    if (ask && offers) source_.on_ask(from, *ask);
    if (read && offers) source_.on_read(from, *read);
    if (const auto* offered = std::get_if<OffersWords>(&*words)) fetch_.on_offers(from, *offered);
    if (const auto* chunk = std::get_if<ChunkWords>(&*words)) fetch_.on_chunk(from, *chunk);
    if (const auto* refusal = std::get_if<RefusalWords>(&*words)) fetch_.on_refusal(from, *refusal);
}

}  // namespace crane::proxy
