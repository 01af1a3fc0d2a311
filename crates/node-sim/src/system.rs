//! Random numbers and time of the operating system, replaced by those of the simulated world.
//!
//! The product and its libraries read random numbers from the system: session numbers, jitter, the order of hash
//! maps, and the branch order of `select!`. They also read the time: each HTTP response contains a date, which
//! changes its length, and a runtime counts from its creation. The functions in this file replace those of the C
//! library with the same names, so that the seed determines all of this. The random numbers are not secret.

use std::cell::Cell;

thread_local! {
    /// Threads other than the main one (those of the store) start with the same state, so that their races have no
    /// effect.
    static CHANCE: Cell<u64> = const { Cell::new(0x5eed) };
    /// Time of every clock in the world, in Unix microseconds; `None` on threads that use the system's clocks.
    static CLOCK: Cell<Option<i64>> = const { Cell::new(None) };
}

/// Seeds the random numbers of this thread.
pub(crate) fn begin(seed: u64) {
    CHANCE.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed_0012);
}

/// Sets the clocks of this thread, in Unix microseconds.
pub(crate) fn set_clock(micros: i64) {
    CLOCK.set(Some(micros));
}

/// Sebastiano Vigna's SplitMix64.
fn next() -> u64 {
    let state = CHANCE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    CHANCE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Replaces the function of the C library with this name.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "the name is the C library's")]
extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    if length == 0 {
        return 0;
    }
    // SAFETY: the caller of getrandom(2) owns `length` bytes that may be written at `buffer`.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&next().to_le_bytes()[..chunk.len()]);
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}

/// Replaces the function of the C library with this name.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "the name is the C library's")]
extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let (seconds, nanos) = match CLOCK.get() {
        Some(micros) => (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000) * 1_000),
        None => {
            let id = match clock {
                libc::CLOCK_REALTIME => rustix::time::ClockId::Realtime,
                libc::CLOCK_BOOTTIME => rustix::time::ClockId::Boottime,
                libc::CLOCK_PROCESS_CPUTIME_ID => rustix::time::ClockId::ProcessCPUTime,
                libc::CLOCK_THREAD_CPUTIME_ID => rustix::time::ClockId::ThreadCPUTime,
                libc::CLOCK_REALTIME_COARSE => rustix::time::ClockId::RealtimeCoarse,
                _ => rustix::time::ClockId::Monotonic,
            };
            let now = rustix::time::clock_gettime(id);
            (now.tv_sec, now.tv_nsec)
        }
    };
    // SAFETY: the caller of clock_gettime(2) owns what may be written at `time`.
    unsafe { time.write(libc::timespec { tv_sec: seconds, tv_nsec: nanos }) };
    0
}
