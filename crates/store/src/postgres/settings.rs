//! Check that the database keeps acknowledged commits. Made when a store is opened, when shards are acquired, and with
//! every health check.
//!
//! An acknowledged commit must be on a disk. Three server settings prevent that, and each of them has been found
//! switched off in production. A store refuses to open on such a server, unless the operator has accepted the loss of
//! acknowledged commits.

use tokio_postgres::Row;

use super::connection::Query;
use super::error::Failure;
use crate::StoreError;

/// Minimum version of PostgreSQL.
const VERSION_MIN: i32 = 130_000;

/// Settings with which acknowledged commits may be lost: name, unsafe value, consequence.
const UNSAFE: &[(&str, &str, &str)] = &[
    ("fsync", "off", "a crash of its machine may destroy the whole database"),
    ("full_page_writes", "off", "a crash of its machine may destroy pages that were being written"),
    ("synchronous_commit", "off", "a crash of the server loses the last commits"),
];

/// Settings that define which standbys a commit waits for, and how.
const SYNCHRONOUS: [&str; 2] = ["synchronous_standby_names", "synchronous_commit"];

/// Properties that the server reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    /// Whether the server is PostgreSQL and not a compatible database.
    pub(super) is_postgres: bool,
    version: i32,
    takes_writes: bool,
    /// Values of [`UNSAFE`]; `None` if the server does not know the setting.
    settings: Vec<Option<String>>,
    /// Values of [`SYNCHRONOUS`]; `None` if the server does not know the setting.
    synchronous: [Option<String>; 2],
}

/// Requirements of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Requirements {
    pub(super) allow_unsafe: bool,
    pub(super) require_sync_standby: bool,
}

/// Selects the properties of the server.
pub(super) fn query() -> Query {
    let names = UNSAFE.iter().map(|(name, ..)| *name).chain(SYNCHRONOUS);
    let settings: String = names.map(|name| format!(", current_setting('{name}', TRUE)")).collect();
    Query::new(
        format!(
            "SELECT version(), current_setting('server_version_num', TRUE),
                 current_setting('transaction_read_only', TRUE){settings}"
        ),
        Vec::new(),
    )
}

impl Server {
    /// Decodes the answer to [`query`].
    pub(super) fn of(rows: &[Row]) -> Result<Self, Failure> {
        let row = rows.first().ok_or_else(|| Failure::Unreachable("the database sent no answer".into()))?;
        let text = |index: usize| row.get::<_, Option<String>>(index);
        let version = text(0).unwrap_or_default();
        Ok(Self {
            is_postgres: version.starts_with("PostgreSQL") && !version.contains("-YB-"),
            version: text(1).and_then(|number| number.parse().ok()).unwrap_or(0),
            takes_writes: text(2).as_deref() != Some("on"),
            settings: (0..UNSAFE.len()).map(|index| text(3 + index)).collect(),
            synchronous: [text(3 + UNSAFE.len()), text(4 + UNSAFE.len())],
        })
    }

    /// # Errors
    /// [`StoreError::Unavailable`] that names the problem and the solution.
    pub(super) fn check(&self, demands: Requirements) -> Result<(), StoreError> {
        let refuse = |reason: String| Err(StoreError::Unavailable { source: reason.into() });
        if self.is_postgres && self.version < VERSION_MIN {
            let (found, wanted) = (self.version / 10_000, VERSION_MIN / 10_000);
            return refuse(format!("expected PostgreSQL {wanted} or newer but got PostgreSQL {found}"));
        }
        if !self.takes_writes {
            return refuse(
                "the database is read-only (`transaction_read_only` is `on`): it is a standby, or was \
                 made read-only; name the primary in the address"
                    .into(),
            );
        }
        for (found, (name, bad, loss)) in self.settings.iter().zip(UNSAFE) {
            if found.as_deref() != Some(*bad) {
                continue;
            }
            if !demands.allow_unsafe {
                return refuse(format!(
                    "the database's setting `{name}` is `{bad}`, expected `on`: {loss}; set it in \
                     `postgresql.conf`, or accept this loss by `server.store_allow_unsafe`"
                ));
            }
            tracing::warn!(setting = name, value = bad, loss, "the database may lose acknowledged commits");
        }
        let [names, commit] = self.synchronous.each_ref().map(|value| value.as_deref().unwrap_or_default());
        if demands.require_sync_standby && (names.is_empty() || matches!(commit, "off" | "local")) {
            return refuse(format!(
                "the database waits for no standby (`synchronous_standby_names` is `{names}`, \
                 `synchronous_commit` is `{commit}`), and `server.store_require_sync_standby` demands it: a \
                 fail-over would lose the last commits; name its standbys in `postgresql.conf`"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: Requirements = Requirements { allow_unsafe: false, require_sync_standby: false };
    const LAX: Requirements = Requirements { allow_unsafe: true, ..STRICT };

    fn server() -> Server {
        let settings = vec![Some("on".to_owned()); UNSAFE.len()];
        let synchronous = [Some(String::new()), Some("on".to_owned())];
        Server { is_postgres: true, version: 150_000, takes_writes: true, settings, synchronous }
    }

    /// D7. A failover must lose nothing if that is required.
    #[test]
    fn a_server_without_synchronous_standby_is_refused_if_required() {
        let demands = Requirements { require_sync_standby: true, ..STRICT };
        let with = |names: &str, commit: &str| Server {
            synchronous: [Some(names.to_owned()), Some(commit.to_owned())],
            ..server()
        };
        for (names, commit) in [("", "on"), ("ANY 1 (*)", "local"), ("ANY 1 (*)", "off")] {
            assert!(with(names, commit).check(demands).is_err(), "{names} {commit}");
            with(names, commit).check(STRICT).unwrap();
        }
        for commit in ["on", "remote_write", "remote_apply"] {
            with("standby", commit).check(demands).unwrap();
        }
    }

    /// D5.
    #[test]
    fn each_unsafe_setting_is_refused_by_name_unless_it_is_accepted() {
        server().check(STRICT).unwrap();
        for (index, (name, bad, _)) in UNSAFE.iter().enumerate() {
            let mut server = server();
            server.settings[index] = Some((*bad).to_owned());
            let StoreError::Unavailable { source } = server.check(STRICT).unwrap_err() else { panic!() };
            assert!(source.to_string().contains(name), "{source}");
            server.check(LAX).unwrap();
        }
    }

    #[test]
    fn a_setting_missing_on_the_server_is_accepted() {
        let settings = vec![None; UNSAFE.len()];
        Server { is_postgres: false, version: 130_000, settings, ..server() }.check(STRICT).unwrap();
    }

    #[test]
    fn an_old_server_and_a_standby_are_refused() {
        let old = Server { version: 120_012, ..server() };
        let standby = Server { takes_writes: false, ..server() };
        for (server, words) in [(old, "PostgreSQL 12"), (standby, "standby")] {
            let StoreError::Unavailable { source } = server.check(LAX).unwrap_err() else { panic!() };
            assert!(source.to_string().contains(words), "{source}");
        }
    }
}
