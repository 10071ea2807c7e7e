// LD_PRELOAD library: opening or reading files whose path has a certain part fails with
// an errno. `fail_files` says which; without a call nothing fails.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::string part;  // of a path; empty if no file fails
int error = 0;
bool at_open = false;

bool Fails(const char* path, bool is_opening) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (part.empty() || is_opening != at_open || strstr(path, part.c_str()) == nullptr)
    return false;
  errno = error;
  return true;
}

bool FailsToRead(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  if (size < 0) return false;
  path[size] = 0;
  return Fails(path, /*is_opening=*/false);
}

template <typename Function>
Function* Real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// The mode of a file is the argument after the flags.
mode_t ModeOf(int flags, va_list rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

}  // namespace

extern "C" {

// Lets the files fail whose path has `part_of_path`: their opening, or reading them.
void fail_files(const char* part_of_path, int with_error, int at_opening) {
  const std::lock_guard<std::mutex> lock(mutex);
  part = part_of_path;
  error = with_error;
  at_open = at_opening != 0;
}

#define OPEN(name)                                                \
  int name(const char* path, int flags, ...) {                    \
    va_list rest;                                                 \
    va_start(rest, flags);                                        \
    const mode_t mode = ModeOf(flags, rest);                      \
    va_end(rest);                                                 \
    static int (*const real)(const char*, int, ...) =             \
        reinterpret_cast<int (*)(const char*, int, ...)>(         \
            dlsym(RTLD_NEXT, #name));                             \
    return Fails(path, true) ? -1 : real(path, flags, mode);      \
  }

#define READ(name, offset)                                                    \
  ssize_t name(int file, void* to, size_t size, offset from) {                \
    static auto* const real = Real(&name, #name);                             \
    return FailsToRead(file) ? -1 : real(file, to, size, from);               \
  }

OPEN(open)
OPEN(open64)
READ(pread, off_t)
READ(pread64, off64_t)

int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = ModeOf(flags, rest);
  va_end(rest);
  static auto* const real = Real(&openat, "openat");
  return Fails(path, true) ? -1 : real(folder, path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  static auto* const real = Real(&fopen, "fopen");
  return Fails(path, true) ? nullptr : real(path, mode);
}

ssize_t read(int file, void* to, size_t size) {
  static auto* const real = Real(&read, "read");
  return FailsToRead(file) ? -1 : real(file, to, size);
}
}
