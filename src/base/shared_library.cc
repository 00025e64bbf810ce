#include "base/shared_library.h"

#include <dlfcn.h>
#include <link.h>

namespace tilewright {

void* open_library(const std::string& name, std::string& problem) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library) return library;
  const char* why = dlerror();
  problem = why ? why : name + ": cannot be opened";
  return nullptr;
}

std::string path_of_library(void* library) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name ? map->l_name : "";
}

std::vector<std::string> loaded_libraries(const std::string& stem) {
  struct Search {
    const std::string& stem;
    std::vector<std::string> found;
  } search{stem, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& s = *static_cast<Search*>(data);
        const std::string path = info->dlpi_name ? info->dlpi_name : "";
        if (path.compare(path.rfind('/') + 1, s.stem.size(), s.stem) == 0) s.found.push_back(path);
        return 0;
      },
      &search);
  return search.found;
}

bool find_symbol(void* library, const char* name, void*& address) {
  address = dlsym(library, name);
  return address;
}

}  // namespace tilewright
