//! Refused system calls (seccomp).
//!
//! The lists refuse what an ordinary program does not need and what has often been the way from a sandbox into the kernel:
//! mounts, namespaces, modules, tracing of the kernel, asynchronous I/O rings, keys. A refused call fails with an error that
//! programs know; it never kills them. Programs for another architecture than that of the kernel are killed, because their
//! calls have other numbers.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use model::spec::SandboxLevel;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use crate::error::SandboxError;

/// Refused at every level, with "operation not permitted".
const REFUSED: &[c_long] = &[
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_fanotify_init,
    // Other processes and namespaces.
    libc::SYS_setns,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    // Parts of the kernel with a history of faults.
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The machine.
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
];

/// `open_tree_attr` (Linux 6.15), which has the same number on all architectures.
const OPEN_TREE_ATTR: c_long = 467;
/// `fchmodat2` (Linux 6.6), likewise.
const FCHMODAT2: c_long = 452;

/// Calls that set the mode of a file: the number of that argument, and of the flags if the mode counts only with `O_CREAT`.
const MODES: &[(c_long, u8, Option<u8>)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1, None),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1, None),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1, None),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2, Some(1)),
    (libc::SYS_fchmod, 1, None),
    (libc::SYS_fchmodat, 2, None),
    (FCHMODAT2, 2, None),
    (libc::SYS_mknodat, 2, None),
    (libc::SYS_openat, 3, Some(2)),
];

/// Also refused at the level `strict`: one process controls or reads another one.
const REFUSED_STRICT: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Flags of `clone` and `unshare` that create namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Requests that write into the input of a terminal.
const TERMINAL_INPUT: [u64; 2] = [0x5412, 0x541C];

/// Kinds of sockets; others reach the host of a virtual machine, radio hardware or rare code.
const SOCKETS: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// First number of the calls of the ABI "x32", which a filter for x86-64 does not see as such.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Refuses system calls to this process and its children, for good.
pub(crate) fn refuse(level: SandboxLevel) -> Result<(), SandboxError> {
    let step = "refuse system calls (seccomp)";
    let failed = |error: seccompiler::Error| SandboxError::new(step, io::Error::other(error));
    for (rules, errno) in filters(level).map_err(|error| failed(error.into()))? {
        let program = compile(rules, errno).map_err(|error| failed(error.into()))?;
        seccompiler::apply_filter(&program).map_err(failed)?;
    }
    Ok(())
}

/// Returns the rules with the error of each.
fn filters(level: SandboxLevel) -> Result<[(Rules, i32); 3], seccompiler::BackendError> {
    let strict = if level == SandboxLevel::Strict { REFUSED_STRICT } else { &[] };
    let mut refused: Rules = REFUSED.iter().chain(strict).map(|number| (*number, Vec::new())).collect();
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        let rules = NAMESPACES.map(|flag| {
            let flag = u64::from(flag.cast_unsigned());
            rule(&[(0, SeccompCmpOp::MaskedEq(flag), flag)])
        });
        refused.insert(call, rules.into_iter().collect::<Result<_, _>>()?);
    }
    // A program with the mode "set user id" in a volume would give the rights of this user to others outside.
    for (call, mode, open_flags) in MODES {
        let set = |argument: u8, bit: u32| (argument, SeccompCmpOp::MaskedEq(bit.into()), u64::from(bit));
        let rules = [libc::S_ISUID, libc::S_ISGID].map(|bit| {
            let created = open_flags.map(|flags| set(flags, libc::O_CREAT.cast_unsigned()));
            rule(&[set(*mode, bit)].into_iter().chain(created).collect::<Vec<_>>())
        });
        refused.insert(*call, rules.into_iter().collect::<Result<_, _>>()?);
    }
    let terminal = TERMINAL_INPUT.map(|request| rule(&[(1, SeccompCmpOp::Eq, request)]));
    refused.insert(libc::SYS_ioctl, terminal.into_iter().collect::<Result<_, _>>()?);
    let other = SOCKETS.map(|kind| (0, SeccompCmpOp::Ne, u64::from(kind.cast_unsigned())));
    let sockets = [libc::SYS_socket, libc::SYS_socketpair];
    let sockets = sockets.map(|call| Ok((call, vec![rule(&other)?])));
    let sockets = sockets.into_iter().collect::<Result<Rules, _>>()?;
    // A filter cannot see the flags of these. With this error, programs use `clone` and `openat`.
    let unknown = Rules::from([(libc::SYS_clone3, Vec::new()), (libc::SYS_openat2, Vec::new())]);
    Ok([(refused, libc::EPERM), (sockets, libc::EAFNOSUPPORT), (unknown, libc::ENOSYS)])
}

/// Returns a rule that holds if all conditions on arguments do.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, seccompiler::BackendError> {
    let conditions = conditions.iter().map(|(argument, operator, value)| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator.clone(), *value)
    });
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

fn compile(rules: Rules, errno: i32) -> Result<BpfProgram, seccompiler::BackendError> {
    let refuse = SeccompAction::Errno(errno.cast_unsigned());
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, machine)?;
    let program = BpfProgram::try_from(filter)?;
    #[cfg(target_arch = "x86_64")]
    let program = [refuse_x32().to_vec(), program].concat();
    Ok(program)
}

/// Instructions that refuse the calls of "x32": load the number; if it is one of them, return the error.
#[cfg(target_arch = "x86_64")]
fn refuse_x32() -> [seccompiler::sock_filter; 3] {
    let instruction = |code: u32, jf: u8, k: u32| seccompiler::sock_filter {
        code: u16::try_from(code).unwrap_or(u16::MAX),
        jt: 0,
        jf,
        k,
    };
    [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
    ]
}
