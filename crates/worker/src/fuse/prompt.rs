//! A process that must act on the millisecond, also where hundreds of others want the processor.
//!
//! Each step is taken as far as the system allows it: without the rights for the first, the next one
//! helps; without any, the process is as prompt as all others are.
#![expect(unsafe_code, reason = "priorities and locked memory are the operating system's to give")]

use crate::process::tree;

/// The lowest of the priorities that come before every ordinary process.
const REAL_TIME: i32 = 1;
/// The highest ordinary priority.
const NICE: i32 = -20;

/// Puts this thread before others, and keeps in memory what it needs when it is needed.
pub(super) fn be_prompt() {
    if !come_first() {
        be_first_among_equals();
    }
    // What was never used is not in memory; a look without roots uses what a freeze does.
    tree::members(&[]);
    stay_in_memory();
}

fn come_first() -> bool {
    let param = libc::sched_param { sched_priority: REAL_TIME };
    // SAFETY: `param` outlives the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &param) == 0 }
}

fn be_first_among_equals() -> bool {
    // SAFETY: no memory is passed; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) == 0 }
}

/// Only of what there is now, and only once it was used: locking all that is to come could make an
/// allocation fail later.
fn stay_in_memory() -> bool {
    // SAFETY: no memory is passed; the flags touch none.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) == 0 }
}
