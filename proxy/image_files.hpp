// Base images as those see them who ship and fetch them: the protocol of checkpoints (checkpoint_mail.hpp)
// with one file instead of several. What is a checkpoint's entry there is here a number made of the image's
// sum, so that who asks for it is offered that image alone; its manifest says the sum and the size.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "checkpoint/image_store.hpp"
#include "proxy/checkpoint_files.hpp"

namespace crane::proxy {

/// What CheckpointFetch::want() is told for an image of this sum.
uint64_t image_number(const std::string& sum);

class ImageFiles : public CheckpointFiles {
  public:
    /// `fetcher`: part of the name of what is not whole yet, as several replicas may share the store.
    ImageFiles(const std::string& store, std::string fetcher, uint64_t reserve_bytes)
        : store_(store), fetcher_(std::move(fetcher)), reserve_bytes_(reserve_bytes) {}

    /// This one is to come next. May be called in the loop, unlike all the rest.
    void want(const std::string& sum);

    std::string called(uint64_t index) const override;
    std::string wanted(uint64_t index) const override { return called(index); }
    std::string verifier() const override { return "crane image verify"; }
    std::vector<Offer> offers(uint64_t min_index) override;
    std::string read(const ReadWords& wanted) override;
    Present present() override;
    std::optional<std::vector<ArrivedPart>> resume(const CheckpointName& name) override;
    bool is_manifest(const CheckpointName& name, const std::string& manifest) const override;
    std::vector<ArrivedPart> begin(const CheckpointName& name, const std::string& manifest) override;
    void append(size_t part, uint64_t offset, std::string_view bytes) override;
    bool check(size_t part, const checkpoint::Stop& stop) override;
    void publish() override;

  private:
    struct Open {
        CheckpointName name;
        std::string manifest;
        std::unique_ptr<checkpoint::File> file;
    };
    std::string wanted_sum() const;
    std::string arriving_path(const std::string& sum) const;
    void remove_arriving(const std::string& but) const;
    std::vector<ArrivedPart> parts() const;

    checkpoint::ImageStore store_;
    std::string fetcher_;
    uint64_t reserve_bytes_;
    RoomLook room_;
    mutable std::mutex lock_;
    std::string wanted_;  ///< under lock_
    Open open_;
    std::string sum_;  ///< of the one that arrives
    uint64_t bytes_ = 0;
};

}  // namespace crane::proxy
