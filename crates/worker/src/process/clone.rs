//! Clones a child directly into a control group (`clone3` with `CLONE_INTO_CGROUP`).
//!
//! Moving a process into a v2 group costs about 50 µs and waits for other moves; cloning a child into a group costs
//! nothing. The C library has no function for it, so this module has the instructions for x86-64. On other
//! architectures a child joins by writing to `cgroup.procs`.

#![expect(unsafe_code, reason = "a child on a stack of its own has no safe interface")]

use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::null_mut;

use libc::pid_t;

/// `CLONE_INTO_CGROUP`, available since Linux 5.7.
const INTO_CGROUP: u64 = 0x2_0000_0000;

const TRIAL_STACK: usize = 64 << 10;

/// Starts a child on `stack` that calls `run(argument)` and exits with its result.
///
/// # Errors
/// The error of `clone3`. Before Linux 5.7, or under a system call filter, it states that the call is not supported.
///
/// # Safety
/// As for `clone` with these flags: `stack` must be aligned to 16 bytes and large enough for `run`. The stack, and
/// all memory that `run` uses, must not be used otherwise until the child has exited or called `exec`. With
/// `CLONE_PARENT_SETTID`, `parent_pid` must be valid.
pub(super) unsafe fn into(
    group: RawFd,
    flags: c_int,
    stack: &mut [u128],
    parent_pid: *mut pid_t,
    run: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> io::Result<pid_t> {
    // SAFETY: plain data for which all-zero is a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = u64::from((flags & !libc::SIGCHLD).cast_unsigned()) | INTO_CGROUP;
    args.exit_signal = libc::SIGCHLD as u64;
    args.parent_tid = parent_pid as u64;
    args.stack = stack.as_mut_ptr() as u64;
    args.stack_size = size_of_val(stack) as u64;
    args.cgroup = u64::from(group.cast_unsigned());
    // SAFETY: `args` outlives the call; the caller guarantees the rest.
    let result = unsafe { clone3(&raw const args, run, argument) };
    match pid_t::try_from(result) {
        Ok(pid) if pid >= 0 => Ok(pid),
        _ => Err(io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EINVAL))),
    }
}

/// Returns whether a child that is cloned into this v2 group runs and exits normally.
pub(crate) fn can_clone_into(group: BorrowedFd<'_>) -> bool {
    extern "C" fn end(_: *mut c_void) -> c_int {
        0
    }
    let mut stack = vec![0; TRIAL_STACK / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is ours and larger than `end` needs, and the parent waits until the child has exited.
    let born = unsafe { into(group.as_raw_fd(), flags, &mut stack, null_mut(), end, null_mut()) };
    born.is_ok_and(|pid| {
        let mut status = -1;
        // SAFETY: our own child; `status` outlives the call.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        waited == pid && status == 0
    })
}

#[cfg(target_arch = "x86_64")]
unsafe fn clone3(
    args: *const libc::clone_args,
    run: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> c_long {
    let result: c_long;
    // SAFETY: the child never leaves the block; in the parent the system call changes only these registers.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "mov edi, eax",
            "mov eax, {exit}",
            "syscall",
            "2:",
            exit = const libc::SYS_exit,
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") args,
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") run,
            in("r13") argument,
            out("rcx") _,
            out("r11") _,
        );
    }
    result
}

// Untested on other architectures, so children join by writing there.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn clone3(
    _: *const libc::clone_args,
    _: extern "C" fn(*mut c_void) -> c_int,
    _: *mut c_void,
) -> c_long {
    -c_long::from(libc::ENOSYS)
}
