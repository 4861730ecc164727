#include "threads.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "environment.h"

#if defined(__unix__) || defined(__APPLE__)
#define PRISM_FORKS 1
#include <pthread.h>
#else
#define PRISM_FORKS 0
#endif

namespace prism {
namespace {

// One call's work: pieces are taken one after another until none is left.
struct Work {
  const std::function<void(std::int64_t, std::int64_t)>* body;
  std::int64_t count;
  std::int64_t piece;
  std::atomic<std::int64_t> next{0};
  std::atomic<int> helpers{0};
  std::mutex mutex;
  std::exception_ptr error;

  void Run() {
    const DefaultFloatEnvironment environment;
    for (;;) {
      const std::int64_t begin = next.fetch_add(piece);
      if (begin >= count) return;
      try {
        (*body)(begin, std::min(begin + piece, count));
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (error == nullptr) error = std::current_exception();
      }
    }
  }
};

// Threads are started when first asked for and wait for more work. A process that forks starts its own: the threads
// of its parent are not there.
class Pool {
 public:
  void Help(Work* work, int helpers) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int i = 0; i < helpers; ++i) queue_.push_back(work);
    while (idle_ < static_cast<int>(queue_.size())) {
      std::thread(&Pool::Loop, this).detach();
      ++idle_;
    }
    wake_.notify_all();
  }

  // Takes back what no thread has begun and waits for those that have.
  void Finish(Work* work) {
    std::unique_lock<std::mutex> lock(mutex_);
    queue_.erase(std::remove(queue_.begin(), queue_.end(), work), queue_.end());
    done_.wait(lock, [work] { return work->helpers.load() == 0; });
  }

 private:
  void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return !queue_.empty(); });
      Work* work = queue_.back();
      queue_.pop_back();
      --idle_;
      work->helpers.fetch_add(1);
      lock.unlock();
      work->Run();
      lock.lock();
      work->helpers.fetch_sub(1);
      ++idle_;
      done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::vector<Work*> queue_;
  int idle_ = 0;
};

#if PRISM_FORKS
Pool* pool = nullptr;
std::mutex* pool_mutex = new std::mutex;
Pool& ThePool() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    pool = nullptr;
    pool_mutex = new std::mutex;
  });
  (void)registered;
  const std::lock_guard<std::mutex> lock(*pool_mutex);
  if (pool == nullptr) pool = new Pool;
  return *pool;
}
#else
Pool& ThePool() {
  static Pool* const pool = new Pool;
  return *pool;
}
#endif

}  // namespace

void ParallelFor(std::int64_t count, std::int64_t grain, int threads,
                 const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  const std::int64_t grains = (count + grain - 1) / grain;
  const int used = static_cast<int>(std::min<std::int64_t>(grains, std::max(threads, 1)));
  Work work;
  work.body = &body;
  work.count = count;
  // A few pieces a thread, so that one that is held up does not hold up all.
  const std::int64_t pieces = used == 1 ? 1 : std::min<std::int64_t>(grains, std::int64_t{4} * used);
  work.piece = (grains + pieces - 1) / pieces * grain;
  if (used == 1) {
    work.Run();
  } else {
    Pool& helpers = ThePool();
    helpers.Help(&work, used - 1);
    work.Run();
    helpers.Finish(&work);
  }
  if (work.error != nullptr) std::rethrow_exception(work.error);
}

}  // namespace prism
