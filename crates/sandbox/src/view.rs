//! The files that a process in a sandbox sees.
//!
//! Both views share their parts: the directory of the execution and most volumes are writable, `/tmp` and `/dev/shm` are
//! empty and in memory, `/dev` has a few harmless devices, and `/proc` shows the processes of the sandbox.
//!
//! What is shown from the machine is first copied as detached mounts, and attached when its place exists. So no path is looked
//! up in a half finished view.

#![expect(unsafe_code, reason = "mount_setattr has no safe interface")]

use std::ffi::{CStr, CString};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

use crate::error::{PROC, SandboxError, Step as _};

/// What a sandbox shows of the machine, beside what all sandboxes of its level show.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// Directory of the execution: writable, with the same path as on the machine. It becomes the working directory.
    pub directory: PathBuf,
    /// Further writable directories: the volumes of the job.
    pub writable: Vec<PathBuf>,
    /// Directories of the job that it cannot write to: files with secrets.
    pub read_only: Vec<PathBuf>,
    /// Further files and directories to show, read-only.
    pub readable: Vec<PathBuf>,
    /// Files and directories that no sandbox shows, also if they are below a directory that it shows.
    pub hidden: Vec<PathBuf>,
    /// Symbolic links to create, as (link, target), if the directory of the link is private to the sandbox.
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// Directories of programs and libraries. Where they are symbolic links, as `/bin` in most systems, the view has the same links.
const PROGRAMS: [&str; 9] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"];
/// Public settings that programs and libraries read. Nothing here may be secret, also if tasks run as root.
const SETTINGS: [&str; 44] = [
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/default/locale",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/java",
    "/etc/ld-musl-aarch64.path",
    "/etc/ld-musl-x86_64.path",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/perl",
    "/etc/php",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/profile",
    "/etc/profile.d",
    "/etc/protocols",
    "/etc/python3",
    "/etc/resolv.conf",
    "/etc/rpc",
    "/etc/services",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
];
/// Prefix of the settings of Java, which have the version in their name.
const JAVA: &str = "java-";
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Directories that are empty and private in the level `basic`. `/run` has the sockets of services of the machine.
const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", "/run"];
/// Settings of `ssh`, which refuses files of owners that are unknown in the sandbox.
const SSH_SETTINGS: &str = "/etc/ssh/ssh_config.d";
const RESOLVER: &str = "/etc/resolv.conf";

/// Sizes of the file systems in memory. Their content counts as memory of the task.
const TMP_SIZE: &str = "size=256m,mode=1777";
const SHM_SIZE: &str = "size=64m,mode=1777";
const FRAME_SIZE: &str = "size=1m,mode=755";

/// Flags of `mount_setattr`, from `linux/mount.h`.
const READ_ONLY: u64 = 0x1;
const NO_SUID: u64 = 0x2;
const NO_DEVICES: u64 = 0x4;

/// A part of the machine, as a detached mount.
struct Part {
    tree: OwnedFd,
    path: PathBuf,
    is_directory: bool,
}

impl Part {
    /// Copies what is at `path`, with all mounts below it. Follows links, so the path must not be under the control of a task.
    fn copy(path: &Path, attributes: u64) -> Result<Self, SandboxError> {
        Self::copy_resolved(path, attributes, ResolveFlags::empty())
    }

    /// Copies what is at `path`, in which a task could have replaced a directory by a link.
    fn copy_without_links(path: &Path, attributes: u64) -> Result<Self, SandboxError> {
        Self::copy_resolved(path, attributes, ResolveFlags::NO_SYMLINKS)
    }

    fn copy_resolved(path: &Path, attributes: u64, resolve: ResolveFlags) -> Result<Self, SandboxError> {
        let step = || format!("show `{}`", path.display());
        let place = openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
        let place = place.step(step())?;
        let kind = FileType::from_raw_mode(fstat(&place).step(step())?.st_mode);
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = rustix::mount::open_tree(&place, c"", flags).step(step())?;
        set_attributes(&tree, c"", attributes, true).step(step())?;
        Ok(Self { tree, path: path.to_owned(), is_directory: kind == FileType::Directory })
    }

    /// Attaches the part at `place`, which is created if it does not exist.
    fn attach(&self, place: &Path) -> Result<(), SandboxError> {
        let step = || format!("show `{}`", self.path.display());
        if self.is_directory {
            make_directory(place).step(step())?;
        } else if !place.exists() {
            make_directory(place.parent().unwrap_or(place)).step(step())?;
            File::create(place).step(step())?;
        }
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&self.tree, c"", CWD, place, flags).step(step())
    }
}

/// Parts that every sandbox has.
struct Common {
    devices: Vec<Part>,
    volumes: Vec<Part>,
    /// Directory of the execution.
    directory: Part,
    /// `/dev/null`, once for each hidden file.
    nothing: Vec<Part>,
}

impl Common {
    fn copy(view: &View) -> Result<Self, SandboxError> {
        // Reading and writing a device does not depend on its mount, but its mode and owner do.
        let device = |name: &str| Part::copy(&Path::new("/dev").join(name), READ_ONLY | NO_SUID);
        let own = NO_SUID | NO_DEVICES;
        let writable = view.writable.iter().map(|path| (path, own));
        let volumes = writable.chain(view.read_only.iter().map(|path| (path, own | READ_ONLY)));
        let volumes = volumes.map(|(path, attributes)| Part::copy_without_links(path, attributes));
        let nothing = view.hidden.iter().filter(|path| path.is_file()).map(|_| device("null"));
        Ok(Self {
            devices: DEVICES.iter().map(|name| device(name)).collect::<Result<_, _>>()?,
            volumes: volumes.collect::<Result<_, _>>()?,
            directory: Part::copy_without_links(&view.directory, own)?,
            nothing: nothing.collect::<Result<_, _>>()?,
        })
    }

    /// Adds `/dev` and `/proc` below `root`.
    fn attach_system(&self, root: &Path) -> Result<(), SandboxError> {
        let dev = root.join("dev");
        make_directory(&dev).step("create `/dev`")?;
        mount_memory(&dev, FRAME_SIZE)?;
        for device in &self.devices {
            device.attach(&dev.join(device.path.file_name().unwrap_or_default()))?;
        }
        let links = [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ];
        for (name, target) in links {
            symlink(target, dev.join(name)).step("create `/dev`")?;
        }
        let (terminals, memory) = (dev.join("pts"), dev.join("shm"));
        for directory in [&terminals, &memory] {
            make_directory(directory).step("create `/dev`")?;
        }
        let quiet = MountFlags::NOSUID | MountFlags::NOEXEC;
        let options = c"newinstance,ptmxmode=0666,mode=0620";
        rustix::mount::mount(c"devpts", &terminals, c"devpts", quiet, options).step("create `/dev/pts`")?;
        mount_memory(&memory, SHM_SIZE)?;
        freeze(&dev)?;
        let proc = root.join("proc");
        make_directory(&proc).step(PROC)?;
        // Read-only, because user 0 of the machine may write to settings of the kernel there.
        let flags = quiet | MountFlags::NODEV | MountFlags::RDONLY;
        rustix::mount::mount(c"proc", &proc, c"proc", flags, None::<&CStr>).step(PROC)
    }

    /// Adds the volumes below `root`; then covers what is hidden, which may be below a volume; then adds the directory of the
    /// execution, which may be below a hidden one.
    fn attach_writable(&self, root: &Path, view: &View) -> Result<(), SandboxError> {
        for part in &self.volumes {
            part.attach(&below(root, &part.path))?;
        }
        let mut nothing = self.nothing.iter();
        let mut covered = Vec::new();
        let is_covered =
            |path: &&PathBuf| view.hidden.iter().any(|other| other != *path && path.starts_with(other));
        let hidden = view.hidden.iter().filter(|path| !is_covered(path));
        for place in hidden.map(|path| below(root, path)) {
            if place.is_dir() {
                mount_memory(&place, FRAME_SIZE)?;
                covered.push(place);
            } else if place.is_file() {
                nothing.next().map_or(Ok(()), |nothing| nothing.attach(&place))?;
            }
        }
        self.directory.attach(&below(root, &self.directory.path))?;
        for place in covered {
            freeze(&place)?;
        }
        for (link, target) in &view.links {
            let link = below(root, link);
            // A volume may have the link already.
            if fs::read_link(&link).is_ok_and(|found| found == *target) {
                continue;
            }
            make_directory(link.parent().unwrap_or(root))
                .and_then(|()| symlink(target, &link))
                .step(format!("create the link `{}`", link.display()))?;
        }
        Ok(())
    }
}

/// Shows the whole machine, read-only.
pub(crate) fn show_machine(view: &View) -> Result<(), SandboxError> {
    detach_from_machine()?;
    let root = Path::new("/");
    let common = Common::copy(view)?;
    // The name server is often configured in a file of `/run`.
    let resolver = fs::canonicalize(RESOLVER).ok().filter(|path| path.starts_with("/run"));
    let resolver = resolver.map(|path| Part::copy(&path, READ_ONLY | NO_SUID | NO_DEVICES)).transpose()?;
    // They may be in a private directory, such as `/tmp`.
    let readable = readable_parts(view)?;
    let everything = File::open(root).step("open `/`")?;
    set_attributes(&everything, c"", READ_ONLY | NO_SUID | NO_DEVICES, true)
        .step("make the files of the machine read-only")?;
    for directory in PRIVATE.map(Path::new).iter().filter(|path| path.is_dir()) {
        mount_memory(directory, TMP_SIZE)?;
    }
    if Path::new(SSH_SETTINGS).is_dir() {
        mount_memory(Path::new(SSH_SETTINGS), FRAME_SIZE)?;
    }
    common.attach_system(root)?;
    for part in readable.iter().chain(&resolver) {
        part.attach(&part.path)?;
    }
    common.attach_writable(root, view)?;
    std::env::set_current_dir(&view.directory).step("enter the directory of the execution")
}

/// Shows only programs, libraries and public settings.
pub(crate) fn show_selection(view: &View) -> Result<(), SandboxError> {
    detach_from_machine()?;
    let common = Common::copy(view)?;
    let java = fs::read_dir("/etc").into_iter().flatten().flatten();
    let java = java.filter(|entry| entry.file_name().as_bytes().starts_with(JAVA.as_bytes()));
    let shown = PROGRAMS.iter().chain(&SETTINGS).map(PathBuf::from);
    let shown = shown.chain(java.map(|entry| entry.path())).filter(|path| path.exists());
    let mut parts = Vec::new();
    let mut links = Vec::new();
    for path in shown {
        match fs::read_link(&path) {
            Ok(target) if is_shown(&path) => links.push((path, target)),
            _ => parts.push(Part::copy(&path, READ_ONLY | NO_SUID | NO_DEVICES)?),
        }
    }
    let readable = readable_parts(view)?;
    // Any directory can be the place of the new root for a moment.
    let root = Path::new("/tmp");
    mount_memory(root, FRAME_SIZE)?;
    for part in &parts {
        part.attach(&below(root, &part.path))?;
    }
    for (link, target) in links {
        let place = below(root, &link);
        make_directory(place.parent().unwrap_or(root))
            .and_then(|()| symlink(target, &place))
            .step(format!("show `{}`", link.display()))?;
    }
    write_accounts(&root.join("etc"), &view.directory).step("create `/etc/passwd`")?;
    for name in ["tmp", "var/tmp"] {
        let directory = root.join(name);
        make_directory(&directory).step("create `/tmp`")?;
        mount_memory(&directory, TMP_SIZE)?;
    }
    common.attach_system(root)?;
    for part in &readable {
        part.attach(&below(root, &part.path))?;
    }
    common.attach_writable(root, view)?;
    freeze(root)?;
    std::env::set_current_dir(root).step("enter the new root")?;
    // Stacks the old root on the new one, which is then uncovered (pivot_root(2)).
    rustix::process::pivot_root(c".", c".").step("change the root")?;
    rustix::mount::unmount(c".", UnmountFlags::DETACH).step("remove the old root")?;
    std::env::set_current_dir(&view.directory).step("enter the directory of the execution")
}

/// Returns the further readable files and directories.
fn readable_parts(view: &View) -> Result<Vec<Part>, SandboxError> {
    let copy = |path: &PathBuf| {
        let mut part = Part::copy(path, READ_ONLY | NO_SUID | NO_DEVICES)?;
        // A place such as `/bin/tool` is one in `/usr` if `/bin` is a link.
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            part.path = fs::canonicalize(parent).step(format!("show `{}`", path.display()))?.join(name);
        }
        Ok(part)
    };
    view.readable.iter().map(copy).collect()
}

/// Lets no later mount or unmount pass between the sandbox and the machine.
fn detach_from_machine() -> Result<(), SandboxError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", private).step("separate its mounts from those of the machine")
}

/// Returns whether a symbolic link leads to a file that the selection has.
fn is_shown(link: &Path) -> bool {
    fs::canonicalize(link).is_ok_and(|target| target.starts_with("/usr"))
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Creates a directory with its parents; succeeds if it exists.
fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn mount_memory(place: &Path, options: &str) -> Result<(), SandboxError> {
    let options = CString::new(options).map_err(io::Error::from).step("mount a file system in memory")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(c"tmpfs", place, c"tmpfs", flags, options.as_c_str())
        .step(format!("mount a file system in memory at `{}`", place.display()))
}

/// Makes the mount at `place` read-only, without those below it.
fn freeze(place: &Path) -> Result<(), SandboxError> {
    let mount = File::open(place).step(format!("open `{}`", place.display()))?;
    set_attributes(&mount, c"", READ_ONLY, false).step(format!("make `{}` read-only", place.display()))
}

/// Adds attributes to a mount, and to those below it if `recursive` (`mount_setattr`, Linux 5.12).
fn set_attributes(mount: impl AsFd, path: &CStr, attributes: u64, recursive: bool) -> io::Result<()> {
    let change = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: `path` and `change` are valid for the call, which is given the size of `change`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Writes the accounts that programs look up: root and the user of the job.
fn write_accounts(etc: &Path, home: &Path) -> io::Result<()> {
    make_directory(etc)?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let home = home.display();
    let mut users = "root:x:0:0:root:/root:/usr/sbin/nologin\n".to_owned();
    let mut groups = "root:x:0:\n".to_owned();
    if uid != 0 {
        users += &format!("task:x:{uid}:{gid}::{home}:/bin/sh\n");
    }
    if gid != 0 {
        groups += &format!("task:x:{gid}:\n");
    }
    fs::write(etc.join("passwd"), users)?;
    fs::write(etc.join("group"), groups)
}
