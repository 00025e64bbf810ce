// A stand-in for one library of cuDNN, with nothing behind its names. STUB_VERSION is what it says it is; STUB_MAIN is
// libcudnn itself, STUB_GRAPH the graph library, STUB_CHECK the name of the function by which one of the others tells
// whether the versions agree.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

extern "C" {

#if defined(STUB_GRAPH)
size_t cudnnGetVersion() { return STUB_VERSION; }
#elif defined(STUB_MAIN)
// Like cuDNN's: that of the graph library, which the loader is to find by name.
size_t cudnnGetVersion() {
  void* graph = dlopen("libcudnn_graph.so.9", RTLD_NOW);
  auto version = graph ? reinterpret_cast<size_t (*)()>(dlsym(graph, "cudnnGetVersion")) : nullptr;
  return version ? version() : 0;
}
#else
size_t cudnnGetVersion();  // the graph library's, which the others are linked to
#endif

// cuDNN's libraries need functions of each other that another version may not have.
#define STUB_JOIN_(A, B) A##B
#define STUB_JOIN(A, B) STUB_JOIN_(A, B)
#if defined(STUB_GRAPH)
void STUB_JOIN(stub_inside_, STUB_VERSION)() {}
#elif defined(STUB_NEEDS)
void STUB_JOIN(stub_inside_, STUB_VERSION)();
void (*stub_needs)() = &STUB_JOIN(stub_inside_, STUB_VERSION);
#endif

#ifdef STUB_CHECK
int STUB_CHECK() { return cudnnGetVersion() == STUB_VERSION ? 0 : 1002; }
#endif

#ifdef STUB_MAIN
size_t cudnnGetCudartVersion() { return STUB_CUDART; }
const char* cudnnGetErrorString(int) { return "an error"; }
void cudnnGetLastErrorString(char* text, size_t size) {
  if (size) *text = 0;
}
int cudnnCreate(void**) { return 0; }
int cudnnDestroy(void*) { return 0; }
int cudnnSetStream(void*, void*) { return 0; }
int cudnnGetStream(void*, void**) { return 0; }
int cudnnBackendCreateDescriptor(int, void**) { return 0; }
int cudnnBackendDestroyDescriptor(void*) { return 0; }
int cudnnBackendInitialize(void*) { return 0; }
int cudnnBackendFinalize(void*) { return 0; }
int cudnnBackendSetAttribute(void*, int, int, int64_t, const void*) { return 0; }
int cudnnBackendGetAttribute(void*, int, int, int64_t, int64_t*, void*) { return 0; }
int cudnnBackendExecute(void*, void*, void*) { return 0; }
#if STUB_VERSION >= 91000
int cudnnBackendPopulateCudaGraph(void*, void*, void*, void*) { return 0; }
int cudnnBackendUpdateCudaGraph(void*, void*, void*, void*) { return 0; }
#endif
#endif
}
