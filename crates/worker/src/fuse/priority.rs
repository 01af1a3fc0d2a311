//! Scheduling priority and locked memory for a process that must act within milliseconds on a busy machine.
//!
//! Each measure is taken if the process has the rights for it. Without the rights for real-time priority the next one
//! is tried; without any, the process runs with ordinary priority.
#![expect(unsafe_code, reason = "priorities and locked memory are the operating system's to give")]

use crate::process::tree;

/// Lowest real-time priority; it precedes every ordinary process.
const REAL_TIME: i32 = 1;
/// Highest ordinary priority.
const NICE: i32 = -20;

/// Raises the priority of this thread, and locks the memory that it needs to act.
pub(super) fn raise_priority() {
    if !set_real_time() {
        set_nice();
    }
    // Memory that was never used is not loaded. A search without roots runs the same code as a freeze.
    tree::members(&[]);
    lock_memory();
}

fn set_real_time() -> bool {
    let param = libc::sched_param { sched_priority: REAL_TIME };
    // SAFETY: `param` outlives the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &param) == 0 }
}

fn set_nice() -> bool {
    // SAFETY: no memory is passed; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) == 0 }
}

/// Locks only existing pages, and each only after its first use. Locking future pages could make a later allocation
/// fail.
fn lock_memory() -> bool {
    // SAFETY: no memory is passed; the flags touch none.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) == 0 }
}
