//! Contexts: named servers of a user, each with its URL, token file, certificate authority and namespace.
//!
//! They are in `contexts.toml` beside the user's configuration file, and `belfry context` manages them. `--context`
//! selects one, else `$BELFRY_CONTEXT`, else the one that `belfry context use` has set ([`select`]). The settings of the
//! selected context are a source of [`Settings`](crate::settings::Settings), which defines their precedence.
//!
//! ```toml
//! current = "production"
//!
//! [contexts.production]
//! url = "https://belfry.example"
//! token_file = "/home/ann/.config/belfry/production.token"
//! namespace = "pay"
//! ```
//!
//! # Invariants
//! - The file contains no token, only the path of the file with the token.
//! - The file is replaced as a whole, and only its user can read it.
//! - A context that was selected by name exists; otherwise the command fails.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::{Exit, Failure};
use crate::settings::Sources;

/// Environment variable with the name of a context.
pub(crate) const VARIABLE: &str = "BELFRY_CONTEXT";

/// Settings of a context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContextSettings {
    pub(crate) url: String,
    /// Absolute path of the file with the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    /// Absolute path of the file with the certificate authority of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
}

/// Contexts of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// Name of the context that commands use by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, ContextSettings>,
}

impl Contexts {
    /// Reads the file; a missing file has no contexts.
    ///
    /// # Errors
    /// If the file cannot be read, or has an unknown field or a wrong value.
    pub(crate) fn load(path: &Path) -> Result<Self, Failure> {
        let failed = |detail: String| Failure::usage(format!("cannot read `{}`: {detail}", path.display()));
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.map_err(|error| failed(error.to_string()))?,
        };
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| failed(error.to_string()))?;
        serde_path_to_error::deserialize(table).map_err(|error| {
            let (at, detail) = (error.path().to_string(), error.inner().message().to_owned());
            failed(format!("{at}: {detail}"))
                .help("correct the file, or delete it and run `belfry context set`")
        })
    }

    /// Replaces the file.
    pub(crate) fn store(&self, path: &Path) -> Result<(), Failure> {
        let write = || -> std::io::Result<()> {
            let folder = path.parent().unwrap_or(Path::new("."));
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let mut file = tempfile::Builder::new().prefix(".contexts-").tempfile_in(folder)?;
            file.as_file().set_permissions(std::fs::Permissions::from_mode(0o600))?;
            file.write_all(toml::to_string(self).map_err(std::io::Error::other)?.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(|error| {
            Failure::message(Exit::Failed, format!("cannot write `{}`: {error}", path.display()))
        })
    }

    /// Returns a context.
    ///
    /// # Errors
    /// If it does not exist; the hint lists the existing ones.
    pub(crate) fn get(&self, name: &str) -> Result<&ContextSettings, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            let names: Vec<_> = self.contexts.keys().map(|name| format!("`{name}`")).collect();
            let help = match names.as_slice() {
                [] => "create one with `belfry context set NAME --url URL --token-file FILE`".to_owned(),
                names => format!("existing contexts: {}", names.join(", ")),
            };
            Failure::message(Exit::NotFound, format!("context `{name}` does not exist")).help(help)
        })
    }
}

/// How a context was selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// By `--context`: precedes the environment.
    Flag,
    /// By `$BELFRY_CONTEXT`, or by `belfry context use`.
    Default,
}

/// Selected context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selected {
    pub(crate) name: String,
    pub(crate) settings: ContextSettings,
    pub(crate) by: Selection,
}

/// Returns the selected context, if any.
pub(crate) fn select(sources: &Sources, flag: Option<&str>) -> Result<Option<Selected>, Failure> {
    let all = match sources.user_contexts() {
        Some(path) => Contexts::load(&path)?,
        None => Contexts::default(),
    };
    let (name, by) = match (flag, sources.variable(VARIABLE), all.current.as_deref()) {
        (Some(name), ..) => (name, Selection::Flag),
        (None, Some(name), _) | (None, None, Some(name)) => (name, Selection::Default),
        (None, None, None) => return Ok(None),
    };
    let settings = all.get(name)?.clone();
    Ok(Some(Selected { name: name.to_owned(), settings, by }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "current = \"lab\"\n\n[contexts.lab]\nurl = \"http://127.0.0.1:7070\"\n\n\
                        [contexts.production]\nurl = \"https://belfry.example\"\ntoken_file = \"/t\"\nnamespace = \"pay\"\n";

    fn user(file: &str) -> (tempfile::TempDir, Sources) {
        let dir = tempfile::tempdir().unwrap();
        let mut sources = Sources::default();
        sources.variables.insert("HOME".into(), dir.path().display().to_string());
        let path = sources.user_contexts().unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, file).unwrap();
        (dir, sources)
    }

    #[test]
    fn a_flag_precedes_the_environment_and_the_current_context() {
        let (_dir, mut sources) = user(FILE);
        let name =
            |sources: &Sources, flag| select(sources, flag).unwrap().map(|found| (found.name, found.by));
        assert_eq!(name(&sources, None), Some(("lab".into(), Selection::Default)));
        sources.variables.insert(VARIABLE.into(), "production".into());
        assert_eq!(name(&sources, None), Some(("production".into(), Selection::Default)));
        assert_eq!(name(&sources, Some("lab")), Some(("lab".into(), Selection::Flag)));
        let (_dir, sources) = user("");
        assert_eq!(name(&sources, None), None);
    }

    #[test]
    fn a_missing_context_is_an_error_that_lists_the_others() {
        let (_dir, sources) = user(FILE);
        insta::assert_snapshot!(select(&sources, Some("prod")).unwrap_err().render(false), @r"
        error: context `prod` does not exist
        help: existing contexts: `lab`, `production`
        ");
    }

    #[test]
    fn an_unknown_field_is_refused_with_its_path() {
        let (dir, sources) = user("[contexts.lab]\nulr = \"http://127.0.0.1\"\n");
        let text = select(&sources, None).unwrap_err().render(false);
        insta::assert_snapshot!(text.replace(&dir.path().display().to_string(), "HOME"), @r"
        error: cannot read `HOME/.config/belfry/contexts.toml`: contexts.lab.ulr: unknown field `ulr`, expected one of `url`, `token_file`, `ca_file`, `namespace`
        help: correct the file, or delete it and run `belfry context set`
        ");
    }

    #[test]
    fn a_stored_file_is_read_back_and_only_the_user_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("belfry/contexts.toml");
        assert_eq!(Contexts::load(&path).unwrap(), Contexts::default());
        let all: Contexts = toml::from_str(FILE).unwrap();
        all.store(&path).unwrap();
        assert_eq!(Contexts::load(&path).unwrap(), all);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path().join("belfry")).unwrap().count(), 1);
    }
}
