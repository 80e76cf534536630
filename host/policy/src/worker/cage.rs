//! What a child gives up before it reads its first byte: memory beyond its budget, files, sockets, processes, threads.

/// Sets limits of resources, for this process. Returns what the kernel refuses, in words.
#[cfg(target_os = "linux")]
pub(super) fn limit(memory_bytes: u64) -> Vec<String> {
    use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

    let limits = [
        ("of memory", Resource::Data, memory_bytes),
        // What is deeper has no good in mind.
        ("of the stack", Resource::Stack, STACK_BYTES_MAX),
        // The three pipes are open, and nothing else can be.
        ("of open files", Resource::Nofile, 3),
        ("of the size of files", Resource::Fsize, 0),
        // A pipe in core_pattern obeys this limit and no other. In a file there is no room for a dump.
        ("of core dumps", Resource::Core, 1),
    ];
    let mut refused = Vec::new();
    for (what, resource, most) in limits {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        if let Err(error) = setrlimit(resource, limit) {
            refused.push(format!("the limit {what} ({error})"));
        }
    }
    // One that computes would not notice that its pipe is closed.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        refused.push(format!("that it ends with its parent ({error})"));
    }
    if let Err(error) = rustix::thread::set_no_new_privs(true) {
        refused.push(format!("that it gets no new privileges ({error})"));
    }
    refused
}

/// Of the main thread, on which policies run: Linux's usual limit.
#[cfg(target_os = "linux")]
const STACK_BYTES_MAX: u64 = 8 << 20;

/// Filters the system calls of all threads of this process. Returns what the kernel refuses, in words.
#[cfg(target_os = "linux")]
pub(super) fn filter() -> Vec<String> {
    use std::collections::BTreeMap;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, TargetArch, apply_filter_all_threads,
    };

    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return vec!["a filter of system calls for this processor".to_owned()];
    };
    let rules = |calls: &[libc::c_long]| -> BTreeMap<i64, Vec<_>> {
        calls.iter().map(|call| (*call, Vec::new())).collect()
    };
    let argument = |number, operator, value| {
        SeccompCondition::new(number, SeccompCmpArgLen::Dword, operator, value)
            .and_then(|condition| SeccompRule::new(vec![condition]))
    };
    let mut allowed = rules(&allowed());
    let limited = [
        // Of files the three pipes alone, whatever this process was started with.
        (&PIPES[..], argument(0, SeccompCmpOp::Le, 2)),
        // RLIMIT_DATA does not count what is shared, or grows downwards.
        (
            &[libc::SYS_mmap],
            argument(3, SeccompCmpOp::MaskedEq(UNCOUNTED), 0),
        ),
        // Signals for itself, as when it aborts.
        (
            &[libc::SYS_tgkill],
            argument(0, SeccompCmpOp::Eq, u64::from(std::process::id())),
        ),
    ];
    for (calls, rule) in limited {
        match rule {
            Ok(rule) => allowed.extend(calls.iter().map(|call| (*call, vec![rule.clone()]))),
            Err(error) => return vec![format!("the filter of system calls ({error})")],
        }
    }
    let errno = |number: i32| SeccompAction::Errno(number.unsigned_abs());
    // Of several filters the kernel takes the strictest verdict. The last one allows no further one.
    let filters = [
        SeccompFilter::new(
            rules(&deadly()),
            SeccompAction::Allow,
            SeccompAction::KillProcess,
            arch,
        ),
        // wasmtime would keep a memory's first content in a file. It copies that where the kernel has no such files.
        SeccompFilter::new(
            rules(&[libc::SYS_memfd_create]),
            SeccompAction::Allow,
            errno(libc::ENOSYS),
            arch,
        ),
        SeccompFilter::new(allowed, errno(libc::EPERM), SeccompAction::Allow, arch),
    ];
    let mut refused = Vec::new();
    for filter in filters {
        let applied = filter
            .and_then(BpfProgram::try_from)
            .map_err(|error| error.to_string())
            .and_then(|program| {
                apply_filter_all_threads(&program)
                    .map_err(|error| kproxide_common::chain::chain(&error))
            });
        if let Err(error) = applied {
            refused.push(format!("the filter of system calls ({error})"));
            break;
        }
    }
    refused
}

/// Flags of `mmap`.
#[cfg(target_os = "linux")]
const UNCOUNTED: u64 = (libc::MAP_SHARED | libc::MAP_GROWSDOWN).unsigned_abs() as u64;

#[cfg(target_os = "linux")]
const PIPES: [libc::c_long; 5] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
];

/// What computing takes: memory, locks, clocks, and signals of its own.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<libc::c_long> {
    #[allow(unused_mut, reason = "x86-64 has older calls too")]
    let mut calls = vec![
        libc::SYS_ppoll,
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mprotect,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_membarrier,
        libc::SYS_futex,
        libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_restart_syscall,
        libc::SYS_getrandom,
        // Another filter answers it.
        libc::SYS_memfd_create,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_sigaltstack,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.push(libc::SYS_poll);
    calls
}

/// What no policy has a use for, and an attacker has.
#[cfg(target_os = "linux")]
fn deadly() -> Vec<libc::c_long> {
    #[allow(unused_mut, reason = "x86-64 has older calls too")]
    let mut calls = vec![
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_open_by_handle_at,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_bpf,
        libc::SYS_mount,
        libc::SYS_unshare,
        libc::SYS_setns,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        libc::SYS_open,
        libc::SYS_creat,
        libc::SYS_fork,
        libc::SYS_vfork,
    ]);
    calls
}

#[cfg(not(target_os = "linux"))]
pub(super) fn limit(_: u64) -> Vec<String> {
    vec!["all limits: this is not Linux".to_owned()]
}

#[cfg(not(target_os = "linux"))]
pub(super) fn filter() -> Vec<String> {
    vec!["the filter of system calls: this is not Linux".to_owned()]
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_computing_takes_is_allowed_and_nothing_of_it_kills() {
        let allowed = allowed();
        for call in [libc::SYS_futex, libc::SYS_munmap, libc::SYS_exit_group] {
            assert!(allowed.contains(&call), "{call}");
        }
        let deadly = deadly();
        assert!(deadly.contains(&libc::SYS_execve) && deadly.contains(&libc::SYS_socket));
        let both = deadly.iter().find(|call| allowed.contains(call));
        assert_eq!(both, None);
    }
}
