// A folder that stands for a machine, with stand-ins for NVIDIA's libraries wherever a test wants them.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/library_places.h"

namespace tilewright {

class MadeUpMachine {
 public:
  MadeUpMachine();
  ~MadeUpMachine();
  MadeUpMachine(const MadeUpMachine&) = delete;
  MadeUpMachine& operator=(const MadeUpMachine&) = delete;

  // All names are relative to the machine's root; folders are made as they are needed.
  std::string path(const std::string& name) const { return root_ + "/" + name; }
  std::string folder(const std::string& name) const;
  void file(const std::string& name, const std::string& text = "") const;
  void link(const std::string& name, const std::string& to) const;
  void remove(const std::string& name) const;
  // The stand-ins of a set ("cudnn-9.19.0"), or one file of it, copied into a folder; the folder's path.
  std::string put(const std::string& set, const std::string& into, const std::string& only = "") const;
  // The text without the root before each path.
  std::string without_root(std::string text) const;

  Surroundings surroundings() const;

  std::map<std::string, std::string> variables;
  std::string program = "a.out";

 private:
  std::string root_;
};

// What `f` returns in a process of its own: libraries opened there are gone afterwards.
std::string in_own_process(const std::function<std::string()>& f);

}  // namespace tilewright
