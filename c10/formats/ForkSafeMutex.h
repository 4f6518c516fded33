// A mutex that a child process finds free and its data whole, also where another thread held it at
// the fork: the forking thread takes every such mutex first (POSIX, pthread_atfork). Hold one for
// short, never around code that may wait for Python's lock, which the forking thread has.
#pragma once
#include <pthread.h>

#include <mutex>
#include <vector>

namespace c10::formats {

class ForkSafeMutex : public std::mutex {
 public:
  ForkSafeMutex() {
    static const int registered = pthread_atfork(&lock_all, &unlock_all, &unlock_all);
    // Not 0 where there is no memory: then this is a mutex like any other.
    static_cast<void>(registered);
    const std::lock_guard<std::mutex> lock(list());
    all().push_back(this);
  }

 private:
  // They live as long as the process does. Made while the library is loaded, or in a function's
  // first call.
  static std::vector<ForkSafeMutex*>& all() {
    static auto* const mutexes = new std::vector<ForkSafeMutex*>;
    return *mutexes;
  }
  // Of two functions' first calls at once, and held while a child is made: none is added then.
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
