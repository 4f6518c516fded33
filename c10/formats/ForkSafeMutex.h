// A mutex that a child process finds free, with its data whole, even if another thread held it at
// the fork. The forking thread takes every such mutex first (POSIX, pthread_atfork). Hold one
// briefly, and never around code that may wait for Python's lock, which the forking thread has.
#pragma once
#include <pthread.h>

#include <mutex>
#include <vector>

namespace c10::formats {

class ForkSafeMutex : public std::mutex {
 public:
  ForkSafeMutex() {
    static const int registered = pthread_atfork(&lock_all, &unlock_all, &unlock_all);
    // Not 0 if there is no memory; then this is an ordinary mutex.
    static_cast<void>(registered);
    const std::lock_guard<std::mutex> lock(list());
    all().push_back(this);
  }

 private:
  // All mutexes live as long as the process. They are made when the library is loaded, or in a
  // function's first call.
  static std::vector<ForkSafeMutex*>& all() {
    static auto* const mutexes = new std::vector<ForkSafeMutex*>;
    return *mutexes;
  }
  // Guards the list against two first calls at once. Held during a fork, when none is added.
  static std::mutex& list() {
    static auto* const mutex = new std::mutex;
    return *mutex;
  }
  static void lock_all() {
    list().lock();
    for (ForkSafeMutex* m : all()) m->lock();
  }
  static void unlock_all() {
    for (ForkSafeMutex* m : all()) m->unlock();
    list().unlock();
  }
};

} // namespace c10::formats
