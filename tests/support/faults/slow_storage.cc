// LD_PRELOAD library: reads of files below $SLOW_DIR take as long as on storage that
// gives $SLOW_BYTES_PER_SECOND to each process. The last bytes of a burst are paid for
// when they are read, so no more than one read is ahead of the rate.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <mutex>

namespace {

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

bool IsSlow(int file) {
  static const char* folder = getenv("SLOW_DIR");
  if (folder == nullptr) return false;
  char link[64], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  return size > 0 && strncmp(path, folder, strlen(folder)) == 0;
}

void Pay(int file, ssize_t bytes) {
  if (bytes <= 0 || !IsSlow(file)) return;
  static const double rate = atof(getenv("SLOW_BYTES_PER_SECOND"));
  static std::mutex mutex;
  static double paid_until = 0.0;
  double end;
  {
    std::lock_guard<std::mutex> lock(mutex);
    const double now = Now();
    if (paid_until < now) paid_until = now;
    paid_until += bytes / rate;
    end = paid_until;
  }
  const double left = end - Now();
  if (left > 0) usleep(static_cast<useconds_t>(left * 1e6));
}

}  // namespace

extern "C" {

ssize_t pread64(int file, void* to, size_t size, off64_t from) {
  static auto real = reinterpret_cast<ssize_t (*)(int, void*, size_t, off64_t)>(
      dlsym(RTLD_NEXT, "pread64"));
  const ssize_t bytes = real(file, to, size, from);
  Pay(file, bytes);
  return bytes;
}

ssize_t pread(int file, void* to, size_t size, off_t from) {
  return pread64(file, to, size, from);
}

ssize_t read(int file, void* to, size_t size) {
  static auto real =
      reinterpret_cast<ssize_t (*)(int, void*, size_t)>(dlsym(RTLD_NEXT, "read"));
  const ssize_t bytes = real(file, to, size);
  Pay(file, bytes);
  return bytes;
}
}
