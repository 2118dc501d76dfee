/*
 * Writers that do not use noclobber, by every way into a file that the kernel has and Python has not.
 *
 *     outside_writers KIND PATH LOG SEED START_S UNTIL_S [PAUSE_US]
 *                                                             make updates until the time is over
 *     outside_writers --probe KIND PATH                       exit code 0 if this kind works on that file
 *
 * Each changes the slot of the shared file (noclobber/demo/versions.py), or appends a line, and logs as
 * noclobber/demo/outside_writer.py says. Updates come in bursts, with pauses in which a guard can commit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLOT_OFFSET = 5, SLOT_WIDTH = 10, BLOCK = 4096, MOST = 20 * 1000 * 1000 };

static const char *path, *kind;
static char scratch[4096];
static int log_fd = -1, pipe_fds[2], pair_fds[2], scratch_fd = -1, folder_fd = -1;
static long made;
static unsigned char *missed;
static uint64_t random_state;
static volatile sig_atomic_t is_over;

static void stop(int number) {
    (void)number;
    is_over = 1;
}

static void say(const char *text) {
    if (log_fd >= 0 && write(log_fd, text, strlen(text)) < 0) _exit(3);
}

static void fail(const char *what) {
    char text[512];
    snprintf(text, sizeof text, "N %s %s: %s\n", kind, what, strerror(errno));
    say(text);
    fputs(text, stderr);
    _exit(1);
}

static uint64_t chance(uint64_t below) {
    random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (random_state >> 33) % below;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void pause_us(uint64_t longest_us) {
    uint64_t us = longest_us ? chance(longest_us) : 0;
    struct timespec wait = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    if (us) nanosleep(&wait, NULL);
}

/* Accounting. A number that was here and is not any more was dropped by a guard. */

static void note_slot(const char *digits, ssize_t size) {
    long slot = 0;
    if (size == SLOT_WIDTH)
        for (int i = 0; i < SLOT_WIDTH; i++) slot = slot * 10 + (digits[i] - '0');
    else
        say("T -\n");
    for (long tag = slot + 1; tag <= made; tag++) {
        if (missed[tag]) continue;
        missed[tag] = 1;
        char text[64];
        snprintf(text, sizeof text, "M %ld -\n", tag);
        say(text);
    }
}

static void next_slot(char *digits) {
    char text[32];
    snprintf(text, sizeof text, "%010ld", made + 1);
    memcpy(digits, text, SLOT_WIDTH);
}

static void done(void) {
    char text[64];
    if (++made >= MOST - 1) exit(0);
    snprintf(text, sizeof text, "U %ld -\n", made);
    say(text);
}

static void look(int fd) {
    char digits[SLOT_WIDTH];
    note_slot(digits, pread(fd, digits, SLOT_WIDTH, SLOT_OFFSET));
}

static int open_it(int flags) {
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) fail("open");
    return fd;
}

static void must_write(ssize_t written, const char *what) {
    if (written != SLOT_WIDTH) fail(what);
}

static void put_slot_in_scratch(void) {
    char digits[SLOT_WIDTH];
    next_slot(digits);
    if (scratch_fd < 0) {
        scratch_fd = open(scratch, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (scratch_fd < 0) fail("scratch");
    }
    must_write(pwrite(scratch_fd, digits, SLOT_WIDTH, 0), "scratch");
}

/* The kinds: one update each, or a few with one descriptor. */

static void with_dsync(void) {
    char digits[SLOT_WIDTH];
    int fd = open_it(O_RDWR | O_DSYNC);
    look(fd);
    next_slot(digits);
    must_write(pwrite(fd, digits, SLOT_WIDTH, SLOT_OFFSET), "pwrite");
    done();
    close(fd);
}

static void with_direct(void) {
    static char *block;
    if (!block && posix_memalign((void **)&block, BLOCK, BLOCK)) fail("memory");
    int fd = open_it(O_RDWR | O_DIRECT);
    ssize_t size = pread(fd, block, BLOCK, 0);
    if (size < SLOT_OFFSET + SLOT_WIDTH) fail("direct read");
    note_slot(block + SLOT_OFFSET, SLOT_WIDTH);
    next_slot(block + SLOT_OFFSET);
    struct stat status;
    if (fstat(fd, &status)) fail("fstat");
    if (size < BLOCK) memset(block + size, '\n', (size_t)(BLOCK - size));
    if (pwrite(fd, block, BLOCK, 0) != BLOCK) fail("direct write");
    if (size < BLOCK && ftruncate(fd, status.st_size)) fail("ftruncate"); /* A block is the least it writes. */
    done();
    close(fd);
}

static void with_copy_file_range(void) {
    int fd = open_it(O_RDWR);
    look(fd);
    put_slot_in_scratch();
    off_t from = 0, to = SLOT_OFFSET;
    must_write(copy_file_range(scratch_fd, &from, fd, &to, SLOT_WIDTH, 0), "copy_file_range");
    done();
    close(fd);
}

static void with_sendfile(void) {
    int fd = open_it(O_RDWR);
    look(fd);
    put_slot_in_scratch();
    off_t from = 0;
    if (lseek(fd, SLOT_OFFSET, SEEK_SET) < 0) fail("lseek");
    must_write(sendfile(fd, scratch_fd, &from, SLOT_WIDTH), "sendfile");
    done();
    close(fd);
}

static void with_splice(void) {
    char digits[SLOT_WIDTH];
    int fd = open_it(O_RDWR);
    look(fd);
    next_slot(digits);
    must_write(write(pipe_fds[1], digits, SLOT_WIDTH), "pipe");
    off_t to = SLOT_OFFSET;
    must_write(splice(pipe_fds[0], NULL, fd, &to, SLOT_WIDTH, 0), "splice");
    done();
    close(fd);
}

static void with_append_flag(void) {
    char line[32];
    int size = snprintf(line, sizeof line, "+%010ld\n", made + 1), fd = open_it(O_WRONLY);
    struct iovec part = {line, (size_t)size};
    if (pwritev2(fd, &part, 1, -1, RWF_APPEND) != size) fail("pwritev2");
    done();
    close(fd);
}

static void with_aio(void) {
    static aio_context_t context;
    char digits[SLOT_WIDTH];
    struct iocb request = {0}, *requests[1] = {&request};
    struct io_event event;
    if (!context && syscall(SYS_io_setup, 4, &context)) fail("io_setup");
    int fd = open_it(O_RDWR);
    look(fd);
    next_slot(digits);
    request.aio_fildes = (uint32_t)fd;
    request.aio_lio_opcode = IOCB_CMD_PWRITE;
    request.aio_buf = (uint64_t)(uintptr_t)digits;
    request.aio_nbytes = SLOT_WIDTH;
    request.aio_offset = SLOT_OFFSET;
    if (syscall(SYS_io_submit, context, 1, requests) != 1) fail("io_submit");
    if (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1) fail("io_getevents");
    must_write(event.res, "aio");
    done();
    close(fd);
}

/* io_uring, spoken directly: one request at a time. */

static struct {
    int fd;
    unsigned *tail, *mask, *array, *head_done, *tail_done, *mask_done;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *results;
} ring = {.fd = -1};

static void start_ring(void) {
    struct io_uring_params given = {0};
    ring.fd = (int)syscall(SYS_io_uring_setup, 4, &given);
    if (ring.fd < 0) fail("io_uring_setup");
    size_t asks = given.sq_off.array + given.sq_entries * sizeof(unsigned);
    size_t answers = given.cq_off.cqes + given.cq_entries * sizeof(struct io_uring_cqe);
    int shared = MAP_SHARED | MAP_POPULATE, both = PROT_READ | PROT_WRITE;
    char *ask = mmap(NULL, asks, both, shared, ring.fd, IORING_OFF_SQ_RING);
    char *answer = mmap(NULL, answers, both, shared, ring.fd, IORING_OFF_CQ_RING);
    ring.entries = mmap(NULL, given.sq_entries * sizeof(struct io_uring_sqe), both, shared, ring.fd, IORING_OFF_SQES);
    if (ask == MAP_FAILED || answer == MAP_FAILED || ring.entries == MAP_FAILED) fail("ring");
    ring.tail = (unsigned *)(ask + given.sq_off.tail);
    ring.mask = (unsigned *)(ask + given.sq_off.ring_mask);
    ring.array = (unsigned *)(ask + given.sq_off.array);
    ring.head_done = (unsigned *)(answer + given.cq_off.head);
    ring.tail_done = (unsigned *)(answer + given.cq_off.tail);
    ring.mask_done = (unsigned *)(answer + given.cq_off.ring_mask);
    ring.results = (struct io_uring_cqe *)(answer + given.cq_off.cqes);
}

static int ask_ring(const struct io_uring_sqe *request) {
    unsigned tail = *ring.tail, at = tail & *ring.mask;
    ring.entries[at] = *request;
    ring.array[at] = at;
    __atomic_store_n(ring.tail, tail + 1, __ATOMIC_RELEASE);
    while (syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        if (errno != EINTR) fail("io_uring_enter");
    while (__atomic_load_n(ring.tail_done, __ATOMIC_ACQUIRE) == *ring.head_done) {}
    int result = ring.results[*ring.head_done & *ring.mask_done].res;
    __atomic_store_n(ring.head_done, *ring.head_done + 1, __ATOMIC_RELEASE);
    if (result < 0) errno = -result;
    return result;
}

static void write_with_ring(int fd, int flags) {
    char digits[SLOT_WIDTH];
    next_slot(digits);
    struct io_uring_sqe request = {.opcode = IORING_OP_WRITE, .fd = fd, .flags = (uint8_t)flags,
                                   .addr = (uint64_t)(uintptr_t)digits, .len = SLOT_WIDTH, .off = SLOT_OFFSET};
    must_write(ask_ring(&request), "ring write");
    done();
}

static void with_ring(void) { /* Opened, written and closed by the ring. */
    if (ring.fd < 0) start_ring();
    struct io_uring_sqe opening = {.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD,
                                   .addr = (uint64_t)(uintptr_t)path, .open_flags = O_RDWR};
    int fd = ask_ring(&opening);
    if (fd < 0) fail("ring open");
    look(fd);
    write_with_ring(fd, 0);
    struct io_uring_sqe closing = {.opcode = IORING_OP_CLOSE, .fd = fd};
    if (ask_ring(&closing) < 0) fail("ring close");
}

static void with_registered_file(void) { /* The descriptor is closed, and the ring holds the file. */
    if (ring.fd < 0) start_ring();
    int fd = open_it(O_RDWR), reading_fd = open_it(O_RDONLY);
    struct stat one, two;
    if (fstat(fd, &one) || fstat(reading_fd, &two)) fail("fstat");
    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, &fd, 1)) fail("register");
    close(fd);
    for (uint64_t left = 1 + chance(5); left && one.st_ino == two.st_ino; left--) {
        look(reading_fd);
        write_with_ring(0, IOSQE_FIXED_FILE);
        pause_us(chance(2) ? 0 : 300);
    }
    if (syscall(SYS_io_uring_register, ring.fd, IORING_UNREGISTER_FILES, NULL, 0)) fail("unregister");
    close(reading_fd);
}

static void by_passed_descriptor(void) { /* For a while only a message in a socket holds the file. */
    char digits[SLOT_WIDTH], byte = 0, room[CMSG_SPACE(sizeof(int))];
    int fd = open_it(O_RDWR);
    look(fd);
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(pair_fds[0], &message, 0) != 1) fail("sendmsg");
    close(fd);
    pause_us(chance(4) ? 0 : 1000);
    message.msg_controllen = sizeof room;
    if (recvmsg(pair_fds[1], &message, MSG_CMSG_CLOEXEC) != 1) fail("recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    next_slot(digits);
    must_write(pwrite(fd, digits, SLOT_WIDTH, SLOT_OFFSET), "pwrite");
    done();
    close(fd);
}

static void by_reopening(void) { /* Opened for reading first; the second open has no name, only the file. */
    char digits[SLOT_WIDTH], again[64];
    int reading_fd = open_it(O_RDONLY);
    snprintf(again, sizeof again, "/proc/self/fd/%d", reading_fd);
    int fd = open(again, O_RDWR | O_CLOEXEC);
    if (fd < 0) fail("open again");
    look(fd);
    next_slot(digits);
    must_write(pwrite(fd, digits, SLOT_WIDTH, SLOT_OFFSET), "pwrite");
    done();
    close(fd);
    close(reading_fd);
}

static void by_handle(void) { /* As a file server does. */
    char digits[SLOT_WIDTH];
    union {
        struct file_handle head;
        char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } handle;
    int mount = 0, fd;
    do {
        handle.head.handle_bytes = MAX_HANDLE_SZ;
        if (name_to_handle_at(AT_FDCWD, path, &handle.head, &mount, 0)) fail("name_to_handle_at");
        fd = open_by_handle_at(folder_fd, &handle.head, O_RDWR | O_CLOEXEC);
    } while (fd < 0 && errno == ESTALE); /* Replaced and gone since: a server looks the name up again. */
    if (fd < 0) fail("open_by_handle_at");
    look(fd);
    next_slot(digits);
    must_write(pwrite(fd, digits, SLOT_WIDTH, SLOT_OFFSET), "pwrite");
    done();
    close(fd);
}

static void wait_for(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail("waitpid");
    if (status) fail("child");
    done();
}

static void by_child(void) { /* The parent closes the file at once; a child has it and writes later. */
    char digits[SLOT_WIDTH];
    int fd = open_it(O_RDWR);
    look(fd);
    next_slot(digits);
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (!child) {
        pause_us(500);
        _exit(pwrite(fd, digits, SLOT_WIDTH, SLOT_OFFSET) != SLOT_WIDTH);
    }
    close(fd);
    wait_for(child);
}

static void by_mapping(void) { /* No descriptor, only a mapping. Python's own keeps a descriptor beside it. */
    size_t size = SLOT_OFFSET + SLOT_WIDTH;
    int fd = open_it(O_RDWR);
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) fail("mmap");
    close(fd);
    for (uint64_t left = 1 + chance(20); left; left--) {
        note_slot(memory + SLOT_OFFSET, SLOT_WIDTH);
        next_slot(memory + SLOT_OFFSET);
        done();
        pause_us(chance(3) ? 0 : 500);
    }
    munmap(memory, size);
}

static void by_mapping_of_child(void) { /* No descriptor at all, and the mapping is a child's. */
    size_t size = SLOT_OFFSET + SLOT_WIDTH;
    int fd = open_it(O_RDWR);
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) fail("mmap");
    close(fd);
    note_slot(memory + SLOT_OFFSET, SLOT_WIDTH);
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (!child) {
        pause_us(500);
        next_slot(memory + SLOT_OFFSET);
        _exit(0);
    }
    munmap(memory, size);
    wait_for(child);
}

static const struct { const char *name; void (*step)(void); unsigned burst; } KINDS[] = {
    {"dsync", with_dsync, 20},
    {"direct", with_direct, 20},
    {"copy-range", with_copy_file_range, 60},
    {"sendfile", with_sendfile, 60},
    {"splice", with_splice, 60},
    {"append-flag", with_append_flag, 30},
    {"aio", with_aio, 60},
    {"ring", with_ring, 60},
    {"ring-file", with_registered_file, 12},
    {"passed", by_passed_descriptor, 40},
    {"reopened", by_reopening, 60},
    {"handle", by_handle, 60},
    {"child", by_child, 6},
    {"mapping", by_mapping, 6},
    {"child-mapping", by_mapping_of_child, 6},
};

int main(int count, char **words) {
    int is_probe = count == 4 && !strcmp(words[1], "--probe");
    if (!is_probe && count != 7 && count != 8) return 2;
    uint64_t longest_us = count == 8 ? strtoull(words[7], NULL, 10) : 0; /* One by one, this long apart. */
    if (longest_us) signal(SIGTERM, stop); /* The update that it is in is finished. */
    kind = is_probe ? words[2] : words[1];
    path = is_probe ? words[3] : words[2];
    snprintf(scratch, sizeof scratch, "%s.o-tmp", path);
    missed = calloc(MOST, 1);
    random_state = is_probe ? 1 : strtoull(words[4], NULL, 10);
    if (!missed || pipe2(pipe_fds, O_CLOEXEC) || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair_fds)) return 2;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unsigned at = 0, known = sizeof KINDS / sizeof *KINDS;
    while (at < known && strcmp(KINDS[at].name, kind)) at++;
    if (at == known) return 2;
    if (is_probe) {
        KINDS[at].step();
        unlink(scratch);
        return 0;
    }
    log_fd = open(words[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    double start_s = strtod(words[5], NULL), until_s = strtod(words[6], NULL), slowest_s = 0, begun_s;
    while (now_s() < start_s) pause_us(1000);
    while (!is_over && (begun_s = now_s()) < until_s) {
        for (uint64_t left = longest_us ? 1 : 1 + chance(KINDS[at].burst); left; left--) {
            begun_s = now_s();
            KINDS[at].step();
            double took_s = now_s() - begun_s;
            if (took_s > slowest_s) slowest_s = took_s;
        }
        static const uint64_t PAUSES_US[] = {0, 2000, 8000, 20000};
        pause_us(longest_us ? longest_us : PAUSES_US[chance(4)]);
    }
    char text[64];
    snprintf(text, sizeof text, "D %.1f\n", slowest_s * 1000);
    say(text);
    return 0;
}
