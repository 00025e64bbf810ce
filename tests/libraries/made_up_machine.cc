#include "made_up_machine.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tilewright {
namespace fs = std::filesystem;

MadeUpMachine::MadeUpMachine() {
  std::string name = fs::temp_directory_path().string() + "/tilewright_machine_XXXXXX";
  root_ = fs::canonical(mkdtemp(name.data())).string();
  variables["HOME"] = path("home");
  variables["PATH"] = path("bin");
}
MadeUpMachine::~MadeUpMachine() { fs::remove_all(root_); }

std::string MadeUpMachine::folder(const std::string& name) const {
  fs::create_directories(path(name));
  return path(name);
}
void MadeUpMachine::file(const std::string& name, const std::string& text) const {
  folder(fs::path(name).parent_path().string());
  std::ofstream(path(name)) << text;
}
void MadeUpMachine::link(const std::string& name, const std::string& to) const {
  folder(fs::path(name).parent_path().string());
  fs::create_symlink(to, path(name));
}
void MadeUpMachine::remove(const std::string& name) const { fs::remove(path(name)); }

std::string MadeUpMachine::put(const std::string& set, const std::string& into, const std::string& only) const {
  for (const auto& entry : fs::directory_iterator(std::string(TILEWRIGHT_STUBS) + "/" + set))
    if (const std::string name = entry.path().filename().string(); only.empty() || name == only)
      fs::copy(entry.path(), folder(into) + "/" + name, fs::copy_options::overwrite_existing);
  return path(into);
}

std::string MadeUpMachine::without_root(std::string text) const {
  const std::string root = path("");
  for (size_t at; (at = text.find(root)) != std::string::npos;) text.erase(at, root.size());
  return text;
}

Surroundings MadeUpMachine::surroundings() const {
  Surroundings s;
  s.variable = [this](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? std::string() : it->second;
  };
  s.program = program;
  s.root = root_;
  s.has_loader = false;
  return s;
}

std::string in_own_process(const std::function<std::string()>& f) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = f();
    size_t at = 0;
    for (ssize_t n = 1; n > 0 && at < text.size(); at += size_t(n))
      n = write(ends[1], text.data() + at, text.size() - at);
    _exit(at == text.size() ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) text.append(part, size_t(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? text : text + " (the process died)";
}

}  // namespace tilewright
