// --device: what a verb plans for, and where it runs plans.
#pragma once

#include <memory>
#include <string>

#include "plan/engine.h"
#include "tilewright/device.h"
#include "tilewright/graph.h"

namespace tilewright::tool {

// The help text of the option.
extern const char* const kDeviceHelp;

class ChosenDevice {
 public:
  // "auto": TILEWRIGHT_DEVICE, else the first GPU that an engine can use, else the CPU. "cpu", "cuda", "cuda:N": of
  // this machine. Anything else: a target that plans are made for, and that they cannot run on here. Fails where there
  // is no such device.
  explicit ChosenDevice(const std::string& device, const std::string& option = "--device");
  ~ChosenDevice();
  ChosenDevice(const ChosenDevice&) = delete;
  ChosenDevice& operator=(const ChosenDevice&) = delete;

  const Target& target() const { return target_; }
  bool is_gpu() const { return queue_.ordinal >= 0; }  // one of this machine
  Handle handle() const { return handle_; }            // null: the CPU
  const Queue& queue() const { return queue_; }
  // "NVIDIA H200, cuda:sm_90,...": for people.
  std::string text() const;
  // Fails where plans can be made but not run.
  void must_run() const;
  // Makes the graph one for this device: its operation graph, and where it is planned for.
  void lower(graph::Graph&, const std::string& name) const;

 private:
  Target target_;
  Handle handle_;
  Queue queue_;
  void* stream_ = nullptr;
  std::string only_planned_;  // not empty: the text of the target
};

}  // namespace tilewright::tool
