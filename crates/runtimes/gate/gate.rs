//! The gate: the first program of a container, which waits until the shim lets the job run.
//!
//! ```text
//! gate PROGRAM [ARGUMENT…]
//! ```
//!
//! A container engine may start a container long after it was asked to, when the shim is already dead or has no lease. So the
//! engine starts the gate, which runs nothing until the shim writes a byte into the FIFO `go`. If no process has the FIFO open
//! for writing, the shim is dead, and the gate exits. If the program cannot be executed, the gate writes the error number into
//! the FIFO `result`, which is otherwise closed by the execution.
//!
//! The program is static and needs no C library, because it runs in every image. `build.rs` builds it.

#![no_std]
#![no_main]

use core::arch::{asm, naked_asm};

const GO: &[u8] = b"/.belfry/go\0";
const RESULT: &[u8] = b"/.belfry/result\0";
/// Exit code if the job may not run.
const CLOSED: usize = 125;
/// Exit code of a shell for a program that does not exist.
const NOT_FOUND: usize = 127;

const AT_FDCWD: isize = -100;
const O_WRONLY: usize = 0o1;
const O_NONBLOCK: usize = 0o4000;
const O_CLOEXEC: usize = 0o2_000_000;
const POLLIN: i16 = 1;
const EAGAIN: isize = -11;
const EINTR: isize = -4;
const ENOENT: isize = -2;
const EACCES: isize = -13;
const ENOTDIR: isize = -20;
const PATH_MAX: usize = 4096;

#[cfg(target_arch = "x86_64")]
mod number {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const EXECVE: usize = 59;
    pub const EXIT_GROUP: usize = 231;
    pub const OPENAT: usize = 257;
    pub const PPOLL: usize = 271;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const EXECVE: usize = 221;
    pub const EXIT_GROUP: usize = 94;
    pub const OPENAT: usize = 56;
    pub const PPOLL: usize = 73;
}

/// The entry point: the stack has the number of arguments, the arguments and the environment.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    naked_asm!("mov rdi, rsp", "and rsp, -16", "call {main}", main = sym main)
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    naked_asm!("mov x0, sp", "bl {main}", main = sym main)
}

#[cfg(target_arch = "x86_64")]
unsafe fn call(number: usize, a: usize, b: usize, c: usize, d: usize, e: usize) -> isize {
    let result;
    // SAFETY: the callers pass the arguments that the system call expects.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
             in("r8") e, lateout("rcx") _, lateout("r11") _);
    }
    result
}

#[cfg(target_arch = "aarch64")]
unsafe fn call(number: usize, a: usize, b: usize, c: usize, d: usize, e: usize) -> isize {
    let result;
    // SAFETY: the callers pass the arguments that the system call expects.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b, in("x2") c, in("x3") d, in("x4") e);
    }
    result
}

fn exit(code: usize) -> ! {
    loop {
        // SAFETY: the call has no pointers, and does not return.
        unsafe { call(number::EXIT_GROUP, code, 0, 0, 0, 0) };
    }
}

fn open(path: &[u8], flags: usize) -> isize {
    // SAFETY: the path ends with NUL.
    unsafe { call(number::OPENAT, AT_FDCWD as usize, path.as_ptr() as usize, flags | O_NONBLOCK | O_CLOEXEC, 0, 0) }
}

#[repr(C)]
struct PollFd {
    fd: i32,
    events: i16,
    revents: i16,
}

/// Waits for the shim; exits if it is dead.
fn wait() {
    let go = open(GO, 0);
    if go < 0 {
        exit(CLOSED);
    }
    let mut byte = 0u8;
    loop {
        // SAFETY: the buffer has one byte.
        match unsafe { call(number::READ, go as usize, &raw mut byte as usize, 1, 0, 0) } {
            1 => return,
            EAGAIN => {
                let mut fd = PollFd { fd: go as i32, events: POLLIN, revents: 0 };
                // SAFETY: it is one record, and no time limit and no signal mask are given.
                unsafe { call(number::PPOLL, &raw mut fd as usize, 1, 0, 0, 0) };
            }
            EINTR => {}
            _ => exit(CLOSED),
        }
    }
}

/// # Safety
/// `stack` is the stack of a new process.
unsafe extern "C" fn main(stack: *const usize) -> ! {
    wait();
    // SAFETY: the stack has `count` arguments, NUL, and the environment that ends with NUL; all are texts that end with NUL.
    let (count, arguments) = unsafe { (*stack, stack.add(1).cast::<*const u8>()) };
    if count < 2 {
        exit(CLOSED);
    }
    // SAFETY: as above.
    let (arguments, environment) = unsafe { (arguments.add(1), arguments.add(count + 1)) };
    // The execution of the program closes it.
    let result = open(RESULT, O_WRONLY);
    // SAFETY: as above.
    let error = unsafe { execute(arguments, environment) };
    if result >= 0 {
        let byte = (-error) as u8;
        // SAFETY: the buffer has one byte.
        unsafe { call(number::WRITE, result as usize, &raw const byte as usize, 1, 0, 0) };
    }
    exit(NOT_FOUND)
}

/// Executes the program, which is looked for in `PATH` unless its name has a slash. Returns the error of the system.
///
/// # Safety
/// Both are lists of texts, with NUL at the end of each list and each text.
unsafe fn execute(arguments: *const *const u8, environment: *const *const u8) -> isize {
    // SAFETY: as the caller promises.
    unsafe {
        let program = *arguments;
        let exec = |path: *const u8| call(number::EXECVE, path as usize, arguments as usize, environment as usize, 0, 0);
        let length = length(program);
        let mut at = 0;
        while at < length {
            if *program.add(at) == b'/' {
                return exec(program);
            }
            at += 1;
        }
        let mut path = value(environment, b"PATH=");
        let mut error = ENOENT;
        let mut candidate = [0u8; PATH_MAX];
        while !path.is_null() {
            let mut end = 0;
            while *path.add(end) != 0 && *path.add(end) != b':' {
                end += 1;
            }
            if end + 1 + length + 1 <= PATH_MAX {
                copy(path, &raw mut candidate as *mut u8, end);
                candidate[end] = b'/';
                copy(program, (&raw mut candidate as *mut u8).add(end + 1), length + 1);
                match exec(&raw const candidate as *const u8) {
                    ENOENT | ENOTDIR => {}
                    EACCES => error = EACCES,
                    other => return other,
                }
            }
            path = if *path.add(end) == b':' { path.add(end + 1) } else { core::ptr::null() };
        }
        error
    }
}

/// # Safety
/// The text ends with NUL.
unsafe fn length(text: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: as the caller promises. The volatile read keeps the loop from becoming a call of `strlen`.
    while unsafe { text.add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}

/// # Safety
/// Both have at least `count` bytes.
unsafe fn copy(from: *const u8, to: *mut u8, count: usize) {
    let mut at = 0;
    while at < count {
        // SAFETY: as the caller promises. The volatile write keeps the loop from becoming a call of `memcpy`.
        unsafe { to.add(at).write_volatile(*from.add(at)) };
        at += 1;
    }
}

/// Returns the value of a variable; null if it is not set.
///
/// # Safety
/// `environment` is a list of texts, with NUL at the end of the list and of each text.
unsafe fn value(environment: *const *const u8, name: &[u8]) -> *const u8 {
    let mut at = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while !(*environment.add(at)).is_null() {
            let variable = *environment.add(at);
            let mut same = 0;
            while same < name.len() && *variable.add(same) == name[same] {
                same += 1;
            }
            if same == name.len() {
                return variable.add(same);
            }
            at += 1;
        }
    }
    core::ptr::null()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    let mut at = 0;
    while at < count {
        // SAFETY: as the caller promises.
        unsafe { to.add(at).write_volatile(byte as u8) };
        at += 1;
    }
    to
}

/// The core library names it, but nothing unwinds.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(CLOSED)
}
