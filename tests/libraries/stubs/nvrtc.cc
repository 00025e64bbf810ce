// A stand-in for NVRTC with nothing behind its names. STUB_MAJOR and STUB_MINOR are what it says it is.
#include <cstddef>

extern "C" {
int nvrtcVersion(int* major, int* minor) {
  *major = STUB_MAJOR, *minor = STUB_MINOR;
  return 0;
}
int nvrtcCreateProgram(void**, const char*, const char*, int, const char* const*, const char* const*) { return 0; }
int nvrtcCompileProgram(void*, int, const char* const*) { return 0; }
int nvrtcDestroyProgram(void**) { return 0; }
int nvrtcGetCUBINSize(void*, size_t*) { return 0; }
int nvrtcGetCUBIN(void*, char*) { return 0; }
int nvrtcGetPTXSize(void*, size_t*) { return 0; }
int nvrtcGetPTX(void*, char*) { return 0; }
int nvrtcGetProgramLogSize(void*, size_t*) { return 0; }
int nvrtcGetProgramLog(void*, char*) { return 0; }
const char* nvrtcGetErrorString(int) { return "an error"; }
}
