/* The cheapest task there is: exits with 0 and, where we know the system call, without a C library.
 *
 * A C library's start-up costs more than the rest of a process on some machines (CPUID traps under a hypervisor), so that only this
 * program shows what the engine itself costs. Built with
 *
 *     cc -O2 -static -nostdlib -nostartfiles -o noop noop.c        x86-64, aarch64
 *     cc -O2 -static -DNOOP_LIBC -o noop noop.c                    elsewhere
 */
#if !defined(NOOP_LIBC) && defined(__x86_64__)

void _start(void) {
    __asm__ volatile("mov $231, %%eax\n\txor %%edi, %%edi\n\tsyscall" ::: "rax", "rdi", "rcx", "r11"); /* exit_group(0) */
    __builtin_unreachable();
}

#elif !defined(NOOP_LIBC) && defined(__aarch64__)

void _start(void) {
    register long number __asm__("x8") = 94; /* exit_group */
    register long status __asm__("x0") = 0;
    __asm__ volatile("svc #0" ::"r"(number), "r"(status));
    __builtin_unreachable();
}

#else

int main(void) { return 0; }

#endif
