/* A stand-in for NVIDIA's libnvidia-ml.so.1: two GPUs, the second of which does not know most questions. */
#include <stdio.h>
#include <string.h>

#define OK 0
#define NOT_SUPPORTED 3
#define INSUFFICIENT_SIZE 7
#define GIB (1024ULL * 1024 * 1024)

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { unsigned int pid; unsigned long long used; unsigned int instance, compute; } Process;

static int is_old(void *device) { return device == (void *)2; }

int nvmlInitWithFlags(unsigned int flags) { return OK; }
int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : "Error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned int length) { snprintf(text, length, "580.65.06"); return OK; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return OK; }
int nvmlSystemGetProcessName(unsigned int pid, char *text, unsigned int length) {
  snprintf(text, length, "python"); return OK; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) { *device = (void *)(index + 1UL); return OK; }
int nvmlDeviceGetName(void *device, char *text, unsigned int length) {
  snprintf(text, length, is_old(device) ? "Tesla V100-SXM2-16GB" : "NVIDIA H100 80GB HBM3"); return OK; }
int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
  unsigned long long total = is_old(device) ? 16 : 80;
  memory->total = total * GIB; memory->used = 3 * GIB; memory->free = (total - 3) * GIB; return OK; }
int nvmlDeviceGetUtilizationRates(void *device, Utilization *use) {
  if (is_old(device)) return NOT_SUPPORTED;
  use->gpu = 97; use->memory = 12; return OK; }
int nvmlDeviceGetEccMode(void *device, unsigned int *now, unsigned int *next) {
  if (is_old(device)) return NOT_SUPPORTED;
  *now = *next = 1; return OK; }
int nvmlDeviceGetMigMode(void *device, unsigned int *now, unsigned int *next) {
  if (is_old(device)) return NOT_SUPPORTED;
  *now = *next = 0; return OK; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
  *major = is_old(device) ? 7 : 9; *minor = 0; return OK; }
int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts) { *milliwatts = 350500; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned int *milliwatts) { *milliwatts = 700000; return OK; }
int nvmlDeviceGetTemperature(void *device, unsigned int sensor, unsigned int *celsius) { *celsius = 41; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned int *now) { *now = is_old(device) ? 1 : 5; return OK; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned int *most) { *most = is_old(device) ? 3 : 5; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned int *now) { *now = is_old(device) ? 8 : 16; return OK; }
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned int *most) { *most = 16; return OK; }
int nvmlDeviceGetNvLinkState(void *device, unsigned int link, unsigned int *state) {
  if (link >= (is_old(device) ? 6 : 18)) return NOT_SUPPORTED;
  *state = !is_old(device) || link < 4; return OK; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, Process *found) {
  if (is_old(device)) { *count = 0; return OK; }
  if (*count < 1) { *count = 1; return INSUFFICIENT_SIZE; }
  *count = 1; memset(found, 0, sizeof *found); found->pid = 4242; found->used = 2 * GIB; return OK; }
