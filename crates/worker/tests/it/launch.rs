//! Tasks whose programs are not loaded, as on a network file system that does not answer.

#![expect(unsafe_code, reason = "file leases have no safe interface")]

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use model::Duration;
use model::spec::JobSpec;
use proto::v1::finished::How;
use proto::v1::{Assignment, Finished};
use rustix::process::Signal;

use crate::rig::{Rig, assignment, signal, stop};

/// The signal that says that somebody opens a file; the library does not name the number.
const F_SETSIG: i32 = 10;

/// A program that is loaded only when this is dropped: whoever opens it waits until its lease is given back, or until the
/// system takes the lease after 45 seconds.
struct Hanging(File);

impl Hanging {
    /// One that sleeps. `None` where no lease can be had.
    fn new(path: &Path) -> Option<Self> {
        fs::copy("/bin/sleep", path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        let hanging = Self(File::open(path).unwrap());
        // SIGURG, which is ignored: the default signal ends the process when somebody opens the file.
        // SAFETY: no memory is passed.
        let is_leased = unsafe {
            libc::fcntl(hanging.0.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0
                && libc::fcntl(hanging.0.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0
        };
        if !is_leased {
            eprintln!("skipped: no file lease can be had here");
        }
        is_leased.then_some(hanging)
    }

    /// Whether somebody waits for it.
    fn is_awaited(&self) -> bool {
        // SAFETY: no memory is passed.
        unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) != libc::F_WRLCK }
    }
}

/// A worker, and an execution whose program is not loaded.
async fn hanging(rig: &Rig, change: impl FnOnce(&mut JobSpec)) -> Option<(Hanging, Assignment)> {
    let path = rig.dir.path().join("program");
    let program = Hanging::new(&path)?;
    let mut spec = JobSpec::command([path.to_str().unwrap(), "600"]);
    change(&mut spec);
    let order = assignment(&spec);
    rig.server.assign(vec![order.clone()]).await;
    rig.server.until("the start", |_| program.is_awaited().then_some(())).await;
    Some((program, order))
}

pub(crate) async fn a_task_whose_program_is_not_loaded_can_be_stopped() {
    let rig = Rig::new().await;
    for grace_ms in [0, 200] {
        let Some((program, order)) = hanging(&rig, |_| {}).await else { return };
        rig.server.stop(stop(&order, grace_ms)).await;
        let finished = rig.server.finished(&order.execution_id).await;
        assert_eq!((finished.how(), finished.signal), (How::Stopped, Some(9)), "{finished:?}");
        drop(program);
    }
    // And its thread starts the next one.
    assert_eq!(rig.run("exit 0").await.1.exit_code, Some(0));
}

pub(crate) async fn a_task_whose_program_is_not_loaded_times_out() {
    let rig = Rig::new().await;
    let timeout = Some(Duration::from_millis(500));
    let Some((_program, order)) = hanging(&rig, |spec| spec.timeout = timeout).await else { return };
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::TimedOut, "{finished:?}");
    // The system takes the lease after 45 seconds.
    assert!(finished.run_ms < 40_000, "it was loaded first: {finished:?}");
}

pub(crate) async fn a_task_whose_program_is_not_loaded_ends_with_its_supervisor() {
    let rig = Rig::new().await;
    let Some((_program, order)) = hanging(&rig, |_| {}).await else { return };
    signal(rig.supervisor(), Signal::TERM);
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::Interrupted);
    // Otherwise the next supervisor says that this one went down.
    assert_eq!(finished.detail, "the worker's supervisor was stopped");
}

async fn frozen_before_it_is_loaded(
    rig: &Rig,
    change: impl FnOnce(&mut JobSpec),
) -> Option<(Hanging, Assignment)> {
    let found = hanging(rig, change).await?;
    let log = fs::read_to_string(rig.config.dir.join("supervisor.log")).unwrap();
    if log.contains("no control group can be made here") {
        eprintln!("skipped: no control group can be made here");
        return None;
    }
    rig.server.state().lease_ms = None;
    rig.server.until("freezing", |_| child_state(rig).contains(&'T').then_some(())).await;
    Some(found)
}

/// The states of the processes that threads of the supervisor have started, other than its first.
fn child_state(rig: &Rig) -> Vec<char> {
    let supervisor = rig.supervisor();
    let threads = fs::read_dir(format!("/proc/{supervisor}/task")).unwrap().flatten();
    let others = threads.filter(|thread| thread.file_name().to_str() != Some(&supervisor.to_string()));
    let children = others.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: String = children.collect();
    children.split_ascii_whitespace().filter_map(|pid| crate::rig::process_state(pid.parse().ok()?)).collect()
}

pub(crate) async fn a_task_that_was_frozen_before_its_program_was_loaded_can_be_stopped() {
    let rig = Rig::with(|_, state| state.lease_ms = Some(400)).await;
    let Some((_program, order)) = frozen_before_it_is_loaded(&rig, |_| {}).await else { return };
    rig.server.stop(stop(&order, 3_600_000)).await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::Stopped, "{finished:?}");
}

pub(crate) async fn time_that_a_task_was_frozen_before_its_program_was_loaded_does_not_count_towards_its_timeout()
 {
    let rig = Rig::with(|_, state| state.lease_ms = Some(400)).await;
    let timeout = Some(Duration::from_secs(2));
    let found = frozen_before_it_is_loaded(&rig, |spec| spec.timeout = timeout).await;
    let Some((program, order)) = found else { return };
    // Some 60 beats are three seconds: longer than the timeout.
    let beats = rig.server.state().beats.len();
    rig.server.until("sixty beats", |state| (state.beats.len() > beats + 60).then_some(())).await;
    drop(program);
    rig.server.state().lease_ms = Some(60_000);
    let Finished { run_ms, .. } = rig.server.finished(&order.execution_id).await;
    assert!(run_ms > 4_500, "{run_ms} ms, of which it was frozen for some three seconds");
}
