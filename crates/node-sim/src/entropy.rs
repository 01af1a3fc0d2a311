//! The one source of randomness of a process.
//!
//! The product and its libraries draw from the operating system: session numbers, jitter, the order of hash
//! maps, which branch of a `select!` goes first. A function of this name in the program stands before that of
//! the C library, so that all of it comes from the seed. Nothing here is secret.

use std::cell::Cell;

thread_local! {
    /// Threads that only serve the world's (the store's) begin all alike, so that their races decide nothing.
    static STATE: Cell<u64> = const { Cell::new(0x5eed) };
}

/// All that this thread draws from here on follows from `seed`.
pub(crate) fn seed(seed: u64) {
    STATE.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed_0012);
}

/// Sebastiano Vigna's SplitMix64.
fn next() -> u64 {
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Stands before the C library's function of this name.
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
