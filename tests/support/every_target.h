// Runs a body under each instruction set that vector code was compiled for and that this machine has.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace tilewright::testing {

template <class Body>
void on_every_target(Body body) {
  const int64_t supported = hwy::SupportedTargets();
  const int64_t portable = (HWY_SCALAR | HWY_EMU128) & HWY_TARGETS;
  for (const int64_t target : std::initializer_list<int64_t>{HWY_AVX3, HWY_AVX2, HWY_NEON, portable}) {
    if ((target & supported) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace tilewright::testing
