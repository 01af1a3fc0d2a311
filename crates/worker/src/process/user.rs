//! The user that tasks run as.
//!
//! A supervisor that runs as root switches to another user for every task, `nobody` by default. A supervisor without
//! root rights cannot switch, so its tasks run as its own user.

use std::ffi::CString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, User, geteuid, getgrouplist};

/// User and groups of the tasks of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskUser {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// All groups of the user.
    pub(crate) groups: Vec<u32>,
}

/// Why the configured task user cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum UserError {
    #[error("the task user `{0}` does not exist on this machine")]
    Unknown(String),
    #[error("the task user `{0}` is root: expected another user, or the setting `worker.allow_root_tasks`")]
    Root(String),
    #[error("cannot run tasks as `{0}`: only a supervisor that runs as root can run tasks as another user")]
    NotRoot(String),
    #[error("the task user `{user}` cannot access `{}`: the directory must be executable by all users", path.display())]
    Unreachable { user: String, path: PathBuf },
    #[error("cannot look up the task user `{name}`")]
    Lookup { name: String, source: std::io::Error },
}

/// Selects the user of tasks; `None` means the user of the supervisor.
pub(crate) fn select_task_user(
    wanted: Option<&str>,
    allow_root: bool,
) -> Result<Option<TaskUser>, UserError> {
    if !geteuid().is_root() {
        return match wanted {
            Some(name) if look_up(name)?.uid != geteuid().as_raw() => {
                Err(UserError::NotRoot(name.to_owned()))
            }
            _ => Ok(None),
        };
    }
    let name = match (wanted, allow_root) {
        (None, true) => return Ok(None),
        (None, false) => "nobody",
        (Some(name), _) => name,
    };
    let user = look_up(name)?;
    match (user.uid, allow_root) {
        (0, true) => Ok(None),
        (0, false) => Err(UserError::Root(user.name)),
        _ => Ok(Some(user)),
    }
}

fn look_up(name: &str) -> Result<TaskUser, UserError> {
    let failed = |errno: nix::Error| UserError::Lookup { name: name.to_owned(), source: errno.into() };
    let user = User::from_name(name).map_err(failed)?.ok_or_else(|| UserError::Unknown(name.to_owned()))?;
    let c_name = CString::new(name).map_err(|_| UserError::Unknown(name.to_owned()))?;
    let groups = getgrouplist(&c_name, user.gid).map_err(failed)?;
    Ok(TaskUser {
        name: user.name,
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        groups: groups.into_iter().map(Gid::as_raw).collect(),
    })
}

impl TaskUser {
    /// Checks that this user can access `dir`, an absolute path: each parent directory must be executable for the
    /// user.
    pub(crate) fn check_access(&self, dir: &Path) -> Result<(), UserError> {
        for path in dir.ancestors() {
            let Ok(metadata) = path.metadata() else { continue };
            let bit = if metadata.uid() == self.uid {
                0o100
            } else if self.groups.contains(&metadata.gid()) {
                0o010
            } else {
                0o001
            };
            if metadata.mode() & bit == 0 {
                return Err(UserError::Unreachable { user: self.name.clone(), path: path.to_owned() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_selected_only_if_it_is_allowed() {
        if !geteuid().is_root() {
            assert_eq!(select_task_user(None, false).unwrap(), None);
            assert!(matches!(select_task_user(Some("root"), true), Err(UserError::NotRoot(_))));
            return;
        }
        assert_eq!(select_task_user(None, false).unwrap().unwrap().name, "nobody");
        assert!(matches!(select_task_user(Some("root"), false), Err(UserError::Root(_))));
        assert_eq!(select_task_user(Some("root"), true).unwrap(), None);
        assert_eq!(select_task_user(None, true).unwrap(), None);
    }

    #[test]
    fn a_user_that_does_not_exist_is_named() {
        let error = select_task_user(Some("no-such-user-here"), false).unwrap_err();
        assert_eq!(error.to_string(), "the task user `no-such-user-here` does not exist on this machine");
    }

    #[test]
    fn a_folder_that_the_user_cannot_reach_is_named() {
        let user = TaskUser { name: "u".into(), uid: 12_345, gid: 12_345, groups: vec![12_345] };
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let error = user.check_access(&dir.path().join("exec")).unwrap_err();
        assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    }
}
