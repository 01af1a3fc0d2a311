//! A disk that fails at a chosen call, or loses unsynced data, below the real SQLite.
//!
//! This is a SQLite file system (*VFS*) that wraps the real one. It counts every write, sync and truncation in the
//! folder of a [`Disk`], makes one of them fail, and records the calls, so that a test can examine every state that a
//! power cut could have left. It ignores files in other folders. It needs neither privileges nor tools.
#![expect(unsafe_code, reason = "SQLite asks for a file system in C")]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};

use rusqlite::ffi::{
    SQLITE_FULL, SQLITE_IOERR_FSYNC, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE, SQLITE_OK, sqlite3_file,
    sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find, sqlite3_vfs_register,
};

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// `EIO`.
    Broken,
    /// `ENOSPC` for writes; syncs and truncations fail as on a broken disk.
    Full,
}

/// Recorded call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DiskCall {
    Written {
        file: String,
        at: usize,
        bytes: Vec<u8>,
    },
    Truncated {
        file: String,
        size: usize,
    },
    Synced {
        file: String,
    },
    /// The test reports an acknowledged batch.
    Acknowledged(u64),
}

#[derive(Debug, Default)]
struct Watch {
    /// Number of calls before the failing one, its fault, and whether later calls fail as well.
    armed: Option<(u64, Fault, bool)>,
    failed: bool,
    done: Option<Vec<DiskCall>>,
    /// Blocks the store's own fsyncs.
    gate: Arc<Gate>,
}

type Shared = Arc<Mutex<Watch>>;

#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

static DISKS: Mutex<Vec<(PathBuf, Shared)>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watched folder, until this value is dropped.
#[derive(Debug)]
pub(in crate::sqlite) struct Disk {
    folder: PathBuf,
    watch: Shared,
}

impl Disk {
    /// Watches the files that SQLite opens in this folder from now on.
    pub(in crate::sqlite) fn below(folder: &Path) -> Self {
        install();
        let disk = Self { folder: folder.canonicalize().unwrap(), watch: Shared::default() };
        lock(&DISKS).push((disk.folder.clone(), Arc::clone(&disk.watch)));
        disk
    }

    /// Makes one call fail: the `nth` from now, counted from 0.
    pub(super) fn arm(&self, nth: u64, fault: Fault) {
        self.set(nth, fault, false);
    }

    /// Makes that call and all later ones fail.
    pub(super) fn arm_from(&self, nth: u64, fault: Fault) {
        self.set(nth, fault, true);
    }

    fn set(&self, nth: u64, fault: Fault, stays: bool) {
        let mut watch = lock(&self.watch);
        (watch.armed, watch.failed) = (Some((nth, fault, stays)), false);
    }

    /// Stops injecting faults, and returns whether one occurred.
    pub(super) fn disarm(&self) -> bool {
        let mut watch = lock(&self.watch);
        watch.armed = None;
        watch.failed
    }

    /// Blocks or releases the store's own fsyncs from now on.
    pub(in crate::sqlite) fn hold_syncs(&self, hold: bool) {
        let gate = Arc::clone(&lock(&self.watch).gate);
        *lock(&gate.is_closed) = hold;
        gate.opened.notify_all();
    }

    /// Records calls from now on.
    pub(super) fn record(&self) {
        lock(&self.watch).done = Some(Vec::new());
    }

    /// Records that a batch was acknowledged.
    pub(super) fn acknowledged(&self, number: u64) {
        if let Some(done) = &mut lock(&self.watch).done {
            done.push(DiskCall::Acknowledged(number));
        }
    }

    /// Returns the calls since [`record`](Self::record).
    pub(super) fn take(&self) -> Vec<DiskCall> {
        lock(&self.watch).done.take().unwrap_or_default()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        lock(&DISKS).retain(|(folder, _)| *folder != self.folder);
    }
}

/// What happens to a call.
enum Verdict {
    Succeeds,
    Fails(Fault),
}

impl Watch {
    fn next(&mut self) -> Verdict {
        match &mut self.armed {
            Some((0, fault, stays)) => {
                let (fault, stays) = (*fault, *stays);
                self.failed = true;
                if !stays {
                    self.armed = None;
                }
                Verdict::Fails(fault)
            }
            Some((left, ..)) => {
                *left -= 1;
                Verdict::Succeeds
            }
            None => Verdict::Succeeds,
        }
    }

    fn keep(&mut self, done: impl FnOnce() -> DiskCall) {
        if let Some(all) = &mut self.done {
            all.push(done());
        }
    }
}

/// Returns the files that a power cut leaves, if they were `base` before the calls `done`.
///
/// `survives` decides for each unsynced write whether it reached the disk anyway; the last one that did is torn in the
/// middle.
pub(super) fn power_cut(
    base: &BTreeMap<String, Vec<u8>>,
    done: &[DiskCall],
    mut survives: impl FnMut() -> bool,
) -> BTreeMap<String, Vec<u8>> {
    let synced =
        |file: &str| done.iter().rposition(|d| matches!(d, DiskCall::Synced { file: f } if f == file));
    let is_safe = |place: usize, file: &str| synced(file).is_some_and(|last| place < last);
    let mut files = base.clone();
    let mut last: Option<(String, usize, Vec<u8>, Vec<u8>)> = None;
    for (place, step) in done.iter().enumerate() {
        match step {
            DiskCall::Written { file, at, bytes } => {
                let safe = is_safe(place, file);
                if safe || survives() {
                    let content = files.entry(file.clone()).or_default();
                    let end = at + bytes.len();
                    content.resize(content.len().max(end), 0);
                    let before = content[*at..end].to_vec();
                    content[*at..end].copy_from_slice(bytes);
                    last = (!safe).then(|| (file.clone(), *at, bytes.clone(), before)).or(last);
                }
            }
            DiskCall::Truncated { file, size } if is_safe(place, file) || survives() => {
                files.entry(file.clone()).or_default().resize(*size, 0);
                last = None;
            }
            _ => {}
        }
    }
    if let Some((file, at, bytes, before)) = last {
        let content = files.entry(file).or_default();
        let middle = bytes.len() / 2;
        if let Some(torn) = content.get_mut(at + middle..at + bytes.len()) {
            torn.copy_from_slice(&before[middle..]);
        }
    }
    files
}

/// Returns the files of a folder with their contents.
pub(super) fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
    files.map(|entry| (name(&entry), fs::read(entry.path()).unwrap())).collect()
}

/// File handle of SQLite; the real handle follows it in memory.
#[repr(C)]
struct File {
    base: sqlite3_file,
    /// From `Box::into_raw`; null for a file that is not watched.
    of: *mut Watched,
}

struct Watched {
    name: String,
    watch: Shared,
}

/// Returns the real handle behind this one.
fn real(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: SQLite allocates `szOsFile` bytes, which `install` sets to the size of both handles.
    unsafe { file.cast::<File>().add(1).cast() }
}

/// Runs `call` with the methods of the real file.
fn through<R>(file: *mut sqlite3_file, call: impl FnOnce(*mut sqlite3_file, &sqlite3_io_methods) -> R) -> R {
    let real = real(file);
    // SAFETY: a file whose methods are called was opened, so the real one has methods.
    call(real, unsafe { &*(*real).pMethods })
}

fn watched<'a>(file: *mut sqlite3_file) -> Option<&'a Watched> {
    // SAFETY: `open` set it before it gave the file its methods, and `close` alone frees it.
    unsafe { (*file.cast::<File>()).of.as_ref() }
}

/// Decides whether a call succeeds; records `done` if it does.
fn ask(file: *mut sqlite3_file, done: impl FnOnce(String) -> DiskCall) -> Verdict {
    let Some(watched) = watched(file) else { return Verdict::Succeeds };
    let mut watch = lock(&watched.watch);
    let verdict = watch.next();
    if matches!(verdict, Verdict::Succeeds) {
        watch.keep(|| done(watched.name.clone()));
    }
    verdict
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once and uses it no more.
    through(file, |real, methods| unsafe {
        let of = (*file.cast::<File>()).of;
        if !of.is_null() {
            drop(Box::from_raw(of));
        }
        methods.xClose.map_or(SQLITE_OK, |call| call(real))
    })
}

unsafe extern "C" fn write(file: *mut sqlite3_file, bytes: *const c_void, size: c_int, at: i64) -> c_int {
    // SAFETY: SQLite passes `size` bytes.
    let given = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size.unsigned_abs() as usize) };
    let place = usize::try_from(at).unwrap_or(0);
    let verdict = ask(file, |file| DiskCall::Written { file, at: place, bytes: given.to_vec() });
    // SAFETY: the arguments come from SQLite; the half of a torn write is shorter.
    through(file, |real, methods| unsafe {
        let Some(call) = methods.xWrite else { return SQLITE_IOERR_WRITE };
        match verdict {
            Verdict::Succeeds => call(real, bytes, size, at),
            Verdict::Fails(fault) => {
                // Half of it reaches the disk before the call fails.
                call(real, bytes, size / 2, at);
                if fault == Fault::Full { SQLITE_FULL } else { SQLITE_IOERR_WRITE }
            }
        }
    })
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    let to = usize::try_from(size).unwrap_or(0);
    match ask(file, |file| DiskCall::Truncated { file, size: to }) {
        // SAFETY: the arguments are SQLite's own.
        Verdict::Succeeds => through(file, |real, methods| unsafe {
            methods.xTruncate.map_or(SQLITE_IOERR_TRUNCATE, |call| call(real, size))
        }),
        Verdict::Fails(_) => SQLITE_IOERR_TRUNCATE,
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    match ask(file, |file| DiskCall::Synced { file }) {
        // SAFETY: the arguments are SQLite's own.
        Verdict::Succeeds => through(file, |real, methods| unsafe {
            methods.xSync.map_or(SQLITE_IOERR_FSYNC, |call| call(real, flags))
        }),
        Verdict::Fails(_) => SQLITE_IOERR_FSYNC,
    }
}

/// Methods that are forwarded to the real file.
macro_rules! forwarded {
    ($($name:ident = $method:ident($($argument:ident: $kind:ty),*) -> $result:ty, or $otherwise:expr;)*) => {
        $(unsafe extern "C" fn $name(file: *mut sqlite3_file, $($argument: $kind),*) -> $result {
            // SAFETY: the arguments are SQLite's own.
            through(file, |real, methods| unsafe {
                methods.$method.map_or($otherwise, |call| call(real, $($argument),*))
            })
        })*
    };
}

forwarded! {
    read = xRead(to: *mut c_void, size: c_int, at: i64) -> c_int, or SQLITE_IOERR_WRITE;
    file_size = xFileSize(size: *mut i64) -> c_int, or SQLITE_IOERR_WRITE;
    take_lock = xLock(level: c_int) -> c_int, or SQLITE_OK;
    give_lock = xUnlock(level: c_int) -> c_int, or SQLITE_OK;
    check_lock = xCheckReservedLock(out: *mut c_int) -> c_int, or SQLITE_OK;
    control = xFileControl(what: c_int, argument: *mut c_void) -> c_int, or SQLITE_OK;
    sector_size = xSectorSize() -> c_int, or 4096;
    characteristics = xDeviceCharacteristics() -> c_int, or 0;
    shm_map = xShmMap(page: c_int, size: c_int, extend: c_int, to: *mut *mut c_void) -> c_int, or SQLITE_OK;
    shm_lock = xShmLock(offset: c_int, n: c_int, flags: c_int) -> c_int, or SQLITE_OK;
    shm_barrier = xShmBarrier() -> (), or ();
    shm_unmap = xShmUnmap(delete: c_int) -> c_int, or SQLITE_OK;
}

/// Version 2: without memory maps, which the store does not use.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(take_lock),
    xUnlock: Some(give_lock),
    xCheckReservedLock: Some(check_lock),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: `install` stored the real file system there, and SQLite allocates both handles; a name is a C string, or
    // null for a temporary file.
    unsafe {
        (*file).pMethods = std::ptr::null();
        let of = if name.is_null() {
            None
        } else {
            CStr::from_ptr(name).to_str().ok().and_then(|name| watch_of(Path::new(name)))
        };
        let below = (*vfs).pAppData.cast::<sqlite3_vfs>();
        let real = real(file);
        (*real).pMethods = std::ptr::null();
        let Some(call) = (*below).xOpen else { return SQLITE_IOERR_WRITE };
        let result = call(below, name, real, flags, out);
        if result == SQLITE_OK {
            (*file.cast::<File>()).of = of.map_or(std::ptr::null_mut(), |of| Box::into_raw(Box::new(of)));
            (*file).pMethods = &raw const METHODS;
        }
        result
    }
}

/// Called before the store syncs a file without SQLite.
///
/// The sync is recorded at this moment: data that is written during the sync may not be part of it.
pub(in crate::sqlite) fn before_sync(path: &Path) -> std::io::Result<()> {
    let Some(Watched { name, watch }) = watch_of(path) else { return Ok(()) };
    let gate = Arc::clone(&lock(&watch).gate);
    drop(gate.opened.wait_while(lock(&gate.is_closed), |is_closed| *is_closed));
    let mut watch = lock(&watch);
    match watch.next() {
        Verdict::Succeeds => {
            watch.keep(|| DiskCall::Synced { file: name });
            Ok(())
        }
        Verdict::Fails(Fault::Broken) => Err(std::io::ErrorKind::Other.into()),
        Verdict::Fails(Fault::Full) => Err(std::io::ErrorKind::StorageFull.into()),
    }
}

/// Called for a write that the store makes without SQLite.
pub(in crate::sqlite) fn note_write(path: &Path, bytes: &[u8]) {
    if let Some(Watched { name, watch }) = watch_of(path) {
        lock(&watch).keep(|| DiskCall::Written { file: name, at: 0, bytes: bytes.to_vec() });
    }
}

fn watch_of(path: &Path) -> Option<Watched> {
    let disks = lock(&DISKS);
    let (_, watch) = disks.iter().find(|(folder, _)| path.starts_with(folder))?;
    Some(Watched { name: path.file_name()?.to_str()?.to_owned(), watch: Arc::clone(watch) })
}

/// Makes this the file system of all connections of the process.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the real file system lives as long as the process, and this one is leaked; both are complete before
        // SQLite uses this one.
        unsafe {
            let below = sqlite3_vfs_find(std::ptr::null());
            assert!(!below.is_null(), "SQLite has a file system");
            let mut ours = *below;
            ours.szOsFile += c_int::try_from(size_of::<File>()).unwrap();
            ours.pNext = std::ptr::null_mut();
            ours.zName = c"belfry-torture".as_ptr();
            ours.pAppData = below.cast();
            ours.xOpen = Some(open);
            let result = sqlite3_vfs_register(Box::leak(Box::new(ours)), 1);
            assert_eq!(result, SQLITE_OK);
        }
    });
}
