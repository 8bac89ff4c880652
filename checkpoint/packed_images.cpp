// Images of a domain's server with the files that belong to them, as files that can be kept and shipped.
#include <filesystem>
#include <memory>

#include "checkpoint/criu.hpp"
#include "checkpoint/domain_files.hpp"
#include "checkpoint/domain_host.hpp"
#include "checkpoint/domain_launch.hpp"
#include "checkpoint/fail_point.hpp"
#include "checkpoint/processes.hpp"
#include "checkpoint/stopwatch.hpp"

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

constexpr char kUnsettledFile[] = "/unsettled";

/// Where an image lies while CRIU has to do with it, with its files beside; all of it goes with this object.
class ImageFolder {
  public:
    explicit ImageFolder(std::string path) : path_(std::move(path)), files_(path_ + "/files") {
        fs::remove_all(path_);
        fs::create_directories(path_);
        fs::permissions(path_, fs::perms::owner_all);  // it holds the server's memory
    }
    /// Where the files can be copied without reading them.
    explicit ImageFolder(const DomainSpec& spec) : ImageFolder(DomainPaths(spec.state_dir).taken_image) {
        const std::string container = DomainPaths(spec.state_dir).container, within = container + "/copy";
        if (!spec.disk_quota || spec.disk_quota.format != DiskQuota::Format::kXfs) return;
        fs::remove_all(within);
        // Only within a file system is that so. What the server writes meanwhile takes room that it would
        // have without the copy: there has to be enough for all of it.
        const fs::space_info space = fs::space(container);
        if (space.available < space.capacity / 2) return;
        files_ = within;
        least_free_ = space.capacity / 4;
    }
    ~ImageFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
        fs::remove_all(files_, ignored);
    }
    ImageFolder(const ImageFolder&) = delete;
    ImageFolder& operator=(const ImageFolder&) = delete;
    const std::string& path() const { return path_; }
    std::string processes() const { return path_ + "/processes"; }
    const std::string& files() const { return files_; }
    /// What is asked while they are packed: `check`, and whether the server comes to lack room for them.
    Check checked(const Check& check) const {
        return [this, check] {
            if (check) check();
            if (least_free_ != 0 && fs::space(files_).available < least_free_)
                throw std::runtime_error("the server writes so much that its quota has no room for the copy");
        };
    }

  private:
    std::string path_, files_;
    uintmax_t least_free_ = 0;
};

class ImageInFolder : public TakenImage {
  public:
    ImageInFolder(const ImageReport& report, std::unique_ptr<ImageFolder> folder)
        : TakenImage(report), folder_(std::move(folder)) {}
    void pack(const std::string& archive, const std::string& image, const Check& check) const override {
        pack_copy(folder_->files(), archive, folder_->checked(check));
        pack_folder(folder_->processes(), image, Pace::kInBackground, check);
        fail_point("image.packed");
    }

  private:
    std::unique_ptr<ImageFolder> folder_;
};

}  // namespace

std::unique_ptr<TakenImage> DomainHost::take_whole_image(uint64_t files_since_ns, const Check& check,
                                                         const std::vector<std::string>& watched) {
    const std::string container = DomainPaths(spec_.state_dir).container;
    auto folder = std::make_unique<ImageFolder>(spec_);
    fail_point("image.begin");
    const ImageReport report = take_image(
        folder->processes(),
        [&] {
            write_file(folder->processes() + kUnsettledFile, unsettled_files(container, files_since_ns));
            copy_files(container, folder->files(), check);
            fail_point("image.frozen");
        },
        watched);
    fail_point("image.dumped");
    return std::make_unique<ImageInFolder>(report, std::move(folder));
}

ImageReport DomainHost::restore_packed(const std::string& archive, const std::string& image) {
    remove_unpacked_images(spec_);
    const ImageFolder folder(DomainPaths(spec_.state_dir).restored_image);
    const Stopwatch files;
    unpack_folder(image, folder.path());
    lay_out(archive);
    const uint64_t files_us = files.us();
    fail_point("restore.unpacked");
    unsettle(DomainPaths(spec_.state_dir).container, read_text_file(folder.path() + kUnsettledFile));
    ImageReport report = restore(folder.path());
    report.files_us = files_us;
    return report;
}

}  // namespace crane::checkpoint
