// The threads of a pass, and where they wait for each other.
#pragma once
#include <sched.h>

#include <atomic>
#include <cstdint>

namespace prove {

constexpr int MOST_THREADS = 256;

// They meet some 200 times in a pass, and where their cores share no cache a line takes a quarter of a microsecond from
// one to the other: so each has a line of its own to say how often it has arrived, and looks at those of the others.
// OpenMP's own barrier puts threads to sleep at once where a process has started more of them than there are cores, which
// it has as soon as a second thread of it runs passes.
class Barrier {
  public:
    void reset() {
        for (auto& count : arrivals) count.value.store(0, std::memory_order_relaxed);
    }

    int arrive(int index) {
        auto& own = arrivals[index].value;
        int now = own.load(std::memory_order_relaxed) + 1;
        own.store(now, std::memory_order_release);
        return now;
    }

    // Until all have arrived so often.
    void wait(int size, int arrival) {
        for (int i = 0; i < size; i++)
            for (int spins = 0; arrivals[i].value.load(std::memory_order_acquire) < arrival; spins++) {
                if (spins < PATIENT)
                    pause();
                else
                    sched_yield();  // the missing thread may want this core
            }
    }

  private:
    static constexpr int PATIENT = 2000;  // some 50 microseconds
    struct alignas(128) Count {           // CPUs fetch lines in pairs
        std::atomic<int> value{0};
    };
    Count arrivals[MOST_THREADS];

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
    int arrive() const { return barrier.arrive(index); }
    void wait(int arrival) const { barrier.wait(size, arrival); }
    void meet() const { wait(arrive()); }
};

}  // namespace prove
