#include "base/library_search.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/shared_library.h"

namespace tilewright {
namespace fs = std::filesystem;
namespace {

class Search {
 public:
  Search(const Surroundings& surroundings, const LibrarySearch& wanted) : surroundings_(surroundings), wanted_(wanted) {
    note_loaded();
  }

  LibrarySearchResult run() {
    const std::string variable = surroundings_.variable(wanted_.variable.name);
    if (!wanted_.given_path.empty()) only(wanted_.given_path, "the path that the program gives");
    else if (variable == "off") switched_off();
    else if (!variable.empty()) only(variable, wanted_.variable.name);
    else if (!everywhere()) nowhere();
    return std::move(result_);
  }

 private:
  // Folders of the copy that the process has.
  void note_loaded() {
    for (const std::string& name : wanted_.names)
      for (const std::string& path : loaded_libraries(wanted_.stem))
        if (path.find(name.substr(name.find(".so"))) != std::string::npos) loaded_ = folder_of(path);
  }

  bool everywhere() {
    if (wanted_.other_variable)
      if (const std::string path = surroundings_.variable(wanted_.other_variable); !path.empty())
        if (any(given_places(path, wanted_.other_variable))) return true;
    if (!loaded_.empty() && any({{loaded_, "loaded in this process already"}})) return true;
    return any(wheel_places(surroundings_, wanted_.wheel_folders)) || any(toolkit_places(surroundings_)) || by_name();
  }

  bool any(const std::vector<Place>& places) {
    return std::any_of(places.begin(), places.end(), [this](const Place& p) { return serves(p); });
  }

  bool serves(const Place& place) {
    bool there = false;
    LibraryOpening opening;
    std::string text;
    for (const std::string& name : wanted_.names) {
      const std::string path = place.folder + "/" + name;
      if (!is_file(path)) continue;
      there = true;
      opening = open(path);
      text = opening.problem;
      if (!text.empty()) continue;
      text = fmt::format("{}, version {}", name, opening.version);
      result_.found = true, result_.path = path, result_.version = opening.version;
      break;
    }
    if (!there) text = what_instead(place.folder);
    result_.tried.push_back(fmt::format("{} ({}): {}", place.folder, place.named_by, text));
    const Rank rank = there ? Rank::Unusable : text.rfind("has ", 0) == 0 ? Rank::OtherVersion : Rank::None;
    if (nearest_.empty() || rank > rank_) nearest_ = place.folder + ": " + text, rank_ = rank, mend_ = opening.mend;
    return result_.found;
  }

  LibraryOpening open(const std::string& path) {
    if (wanted_.one_copy && !loaded_.empty() && real_path(loaded_) != real_path(folder_of(path)))
      return {fmt::format("not opened: this process has {} loaded from {}, and two copies would mix", wanted_.title,
                          loaded_),
              "", ""};
    LibraryOpening opening = wanted_.open(path);
    if (!opening.problem.empty()) note_loaded();  // some libraries cannot be unloaded
    return opening;
  }

  std::string what_instead(const std::string& folder) const {
    std::error_code none;
    if (!fs::is_directory(folder, none)) return "not there";
    std::vector<std::string> others;
    for (fs::directory_iterator it(folder, none), end; !none && it != end; it.increment(none))
      if (const std::string name = it->path().filename().string(); name.rfind(wanted_.stem + ".so", 0) == 0)
        others.push_back(name);
    if (others.empty()) return fmt::format("no {}", wanted_.names[0]);
    std::sort(others.begin(), others.end());
    return fmt::format("has {}, but {} is needed", fmt::join(others, ", "), fmt::join(wanted_.names, " or "));
  }

  // In LD_LIBRARY_PATH or the loader's cache.
  bool by_name() {
    if (!surroundings_.has_loader || (wanted_.one_copy && !loaded_.empty())) return false;
    for (const std::string& name : wanted_.names) {
      std::string problem;
      void* library = open_library(name, problem);
      if (!library) {
        result_.tried.push_back(fmt::format("the system's loader: {}", problem));
        continue;
      }
      const bool yes = serves({folder_of(path_of_library(library)), "the system's loader"});
      dlclose(library);
      if (yes) return true;
    }
    return false;
  }

  void switched_off() {
    result_.problem = fmt::format("{} is switched off by {}=off", wanted_.title, wanted_.variable.name);
    result_.mend = fmt::format("unset {}", wanted_.variable.name);
  }
  void only(const std::string& path, const std::string& named_by) {
    if (any(given_places(path, named_by))) return;
    result_.problem = fmt::format("{} leads to no usable {}: {}", named_by, wanted_.title, nearest_);
    result_.mend = wanted_.given_path.empty() ? fmt::format("unset {}, or let it name", wanted_.variable.name) : "give";
    result_.mend += rank_ == Rank::Unusable ? " another copy" : fmt::format(" {} or its folder", wanted_.names[0]);
    if (!mend_.empty()) result_.mend = mend_;
  }
  void nowhere() {
    if (rank_ != Rank::None) result_.problem = fmt::format("no usable {}; the nearest: {}", wanted_.title, nearest_);
    else
      result_.problem = fmt::format("{} is not on this machine ({} places looked at; `tilewright doctor` lists them)",
                                    wanted_.title, result_.tried.size());
    result_.mend = wanted_.install;
    if (!mend_.empty()) result_.mend = mend_;
    else if (const size_t pip = result_.mend.find("install "); rank_ == Rank::Unusable && pip != std::string::npos)
      result_.mend.insert(pip + 8, "--force-reinstall ");  // pip would find it installed
  }

  const Surroundings& surroundings_;
  const LibrarySearch& wanted_;
  LibrarySearchResult result_;
  std::string loaded_;
  // What is told where nothing serves: what is nearest to a copy that does.
  enum class Rank { None, OtherVersion, Unusable } rank_ = Rank::None;
  std::string nearest_, mend_;
};

}  // namespace

LibrarySearchResult search_library(const Surroundings& s, const LibrarySearch& wanted) {
  return Search(s, wanted).run();
}

bool is_file(const std::string& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

}  // namespace tilewright
