// The one list of engines, in the order in which they are asked.
#include "engines/cpu/engine.h"
#include "engines/cuda/engine.h"
#include "engines/cudnn/engine.h"
#include "engines/host/engine.h"
#include "engines/onednn/engine.h"
#include "engines/reference/engine.h"
#include "plan/engine.h"

namespace tilewright {

const std::vector<const Engine*>& all_engines() {
  static const std::vector<const Engine*> engines = {&cpu_fused_engine(), &onednn_engine(), &reference_engine(),
                                                     &cudnn_engine(),     &cuda_engine(),   &host_engine()};
  return engines;
}

const Engine* find_engine(std::string_view name) {
  for (const Engine* e : all_engines())
    if (name == e->name()) return e;
  return nullptr;
}

}  // namespace tilewright
