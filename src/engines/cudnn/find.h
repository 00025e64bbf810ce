// The search for cuDNN, as a function of what surrounds the process.
#pragma once

#include "base/library_places.h"
#include "engines/cudnn/loader.h"

namespace tilewright::cudnn {

struct Found {
  Found() = default;
  Found(const Found&) = delete;  // `lookup` points into it
  Lookup lookup;
  Library calls;
};
// `path`: what the program gave to set_path, or empty. `driver`: the CUDA version of this machine's driver, as 13000;
// 0: there is none.
void find(const Surroundings&, const std::string& path, int driver, Found&);

}  // namespace tilewright::cudnn
