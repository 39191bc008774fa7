// The threads of a pass, and where they wait for each other.
#pragma once
#include <sched.h>

#include <atomic>
#include <cstdint>

namespace prove {

// They meet some 250 times in a pass. OpenMP's own barrier puts threads to sleep at once where a process has started
// more of them than there are cores, which it has as soon as a second thread of it runs passes.
class Barrier {
  public:
    void meet(int size) {
        int now = phase.load(std::memory_order_relaxed);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
            arrived.store(0, std::memory_order_relaxed);
            phase.store(now + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; phase.load(std::memory_order_acquire) == now; spins++) {
            if (spins < PATIENT)
                pause();
            else
                sched_yield();  // the missing thread may want this core
        }
    }

  private:
    static constexpr int PATIENT = 2000;  // some 50 microseconds
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<int> phase{0};

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
};

struct Team {
    int index, size;
    Barrier& barrier;

    int begin(int64_t work) const { return int(work * index / size); }
    int end(int64_t work) const { return int(work * (index + 1) / size); }
    void meet() const {
        if (size > 1) barrier.meet(size);
    }
};

}  // namespace prove
