// A file descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace userdma::soft::vfio_user {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() { *this = Fd(); }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace userdma::soft::vfio_user
