// Libraries opened at run time.
#pragma once

#include <string>
#include <vector>

namespace tilewright {

// Opens a path or a name that the loader is to search for; null: `problem` says why. Names stay local to the library.
void* open_library(const std::string& name, std::string& problem);
// The library's path as the loader keeps it.
std::string path_of_library(void* library);
// Paths of the process's libraries whose file name begins with `stem`, in the order of loading.
std::vector<std::string> loaded_libraries(const std::string& stem);

// The address of an exported name; false: it has none.
bool find_symbol(void* library, const char* name, void*& address);
template <class F>
bool find_symbol(void* library, const char* name, F*& function) {
  void* address = nullptr;
  find_symbol(library, name, address);
  function = reinterpret_cast<F*>(address);
  return address;
}

}  // namespace tilewright
