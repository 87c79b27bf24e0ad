/* A wall clock that can be turned: preloaded into a process, it adds the seconds that stand in a shared file, which may
   change at any time. The monotonic clock stays as it is. Where a deadline is given by the wall clock, the kernel is told
   the true one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long *shift_seconds;

__attribute__((constructor)) static void map_shift(void) {
    const char *path = getenv("CLOCK_SHIFT_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) shift_seconds = page;
    close(fd);
}

static long shift(void) { return shift_seconds ? *shift_seconds : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    long result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return (int)result;
}

time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

/* Deadlines of the monotonic clock, which counts from the start of the machine, stay as they are. */
static struct timespec true_deadline(const struct timespec *deadline) {
    struct timespec found = *deadline;
    if (found.tv_sec > 1000000000) found.tv_sec -= shift();
    return found;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!wait) wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec found = true_deadline(deadline);
    return wait(condition, mutex, &found);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *deadline) {
    static int (*wait)(sem_t *, const struct timespec *);
    if (!wait) wait = dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec found = true_deadline(deadline);
    return wait(semaphore, &found);
}
