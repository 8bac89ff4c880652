#include "checkpoint/own_files.hpp"

#include <stdexcept>
#include <system_error>

#include "checkpoint/folder_walk.hpp"
#include "checkpoint/server_files.hpp"

namespace crane::checkpoint {

void lay_out_init(const std::string& upper, const std::string& init_path, const std::string& domain) {
    const Folder own = Folder(upper).below(kInitInside);
    for (const char* name : {"stdout", "stderr", "exit-status"}) own.write(name, "");
    own.copy(init_path, "crane-init", kProgramMode);
    own.write("domain", domain);
}

void check_own_files(const std::string& upper) {
    const auto fail = [](const std::string& path) {
        throw std::runtime_error("the server has put something else in the place of " + path +
                                 ", which is Crane's own and without which it could not be restored");
    };
    const Folder root(upper);
    try {
        static_cast<void>(root.below(kSharedInside));
    } catch (const std::system_error&) {
        fail(kSharedInside);
    }
    try {
        walk_folder(root.below(kInitInside), FolderOrder::kFirst, [&](const Walked& one) {
            if (!S_ISREG(one.look().st_mode)) fail(kInitInside + one.path);
        });
    } catch (const std::system_error&) {
        fail(kInitInside);
    }
}

}  // namespace crane::checkpoint
