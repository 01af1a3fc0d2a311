//! `belfry context`: lists, shows, sets, selects and deletes contexts. No command here talks to a server.
//!
//! A context is a named server: its URL, the paths of its token file and of its certificate authority, and
//! its namespace. The file with all contexts, and
//! the choice of the one that a command uses, are in [`crate::contexts`]; how a context replaces other settings is in
//! [`crate::settings`].
//!
//! A change of the choice warns about environment variables that precede it. Paths of files are stored as absolute paths, and
//! each file is read once to find out whether it can be used.

use std::path::{Path, PathBuf};

use model::api::FieldError;
use serde::Serialize;

use super::Context;
use crate::args::Global;
use crate::args::context::{ContextCommand, ContextSetArgs};
use crate::contexts::{self, ContextSettings, Contexts};
use crate::failure::{Exit, Failure};
use crate::output::OutputOptions;
use crate::output::table::{Cell, Column, Detail, Row, Tone, column};
use crate::settings::Sources;

pub(super) fn run(context: &Context, command: ContextCommand) -> Result<(), Failure> {
    let sources = Sources::environment();
    let path = sources.user_contexts().ok_or_else(|| {
        Failure::message(Exit::Failed, "cannot find your configuration directory")
            .help("set $HOME or $XDG_CONFIG_HOME")
    })?;
    let mut all = Contexts::load(&path)?;
    match command {
        ContextCommand::List => {
            // Also if the context in use does not exist.
            let used = contexts::select(&sources, context.global.context.as_deref()).ok().flatten();
            let used = used.map(|used| used.name);
            let rows = all.contexts.into_iter().map(|(name, settings)| ContextRow {
                in_use: used.as_ref() == Some(&name),
                name,
                settings,
            });
            context.out.list(&rows.collect::<Vec<_>>(), "contexts")
        }
        ContextCommand::Get { name } => {
            let used = contexts::select(&sources, context.global.context.as_deref());
            let (name, settings) = match name {
                Some(name) => (name.clone(), all.get(&name)?.clone()),
                None => match used.as_ref().map_err(|_| ()) {
                    Ok(Some(used)) => (used.name.clone(), used.settings.clone()),
                    Ok(None) => {
                        return Err(Failure::message(Exit::NotFound, "no context is in use")
                            .help("run `belfry context use NAME`"));
                    }
                    Err(()) => return used.map(drop),
                },
            };
            let in_use = used.is_ok_and(|used| used.is_some_and(|used| used.name == name));
            context.out.one(&ContextRow { in_use, name, settings })
        }
        ContextCommand::Set(args) => {
            let row = set(&mut all, &args, &context.global, &std::env::current_dir()?)?;
            all.store(&path)?;
            context.out.row(&row)
        }
        ContextCommand::Use { name, .. } => {
            if let Some(name) = &name {
                all.get(name)?;
            }
            let told = name.as_ref().map_or_else(
                || "commands use no context".to_owned(),
                |name| format!("commands use context `{name}`"),
            );
            all.current = name;
            all.store(&path)?;
            context.out.note(told);
            warn_overridden(context, &sources);
            Ok(())
        }
        ContextCommand::Delete { names } => {
            for name in &names {
                all.get(name)?;
            }
            for name in &names {
                all.contexts.remove(name);
                all.current = all.current.take().filter(|current| current != name);
            }
            all.store(&path)?;
            names.iter().for_each(|name| context.out.note(format!("deleted context `{name}`")));
            Ok(())
        }
    }
}

/// Warns about variables that precede the context in use.
pub(super) fn warn_overridden(context: &Context, sources: &Sources) {
    let precede = [
        "BELFRY_URL",
        "BELFRY_DEV_DATA",
        "BELFRY_CA_FILE",
        "BELFRY_TOKEN",
        "BELFRY_TOKEN_FILE",
        "BELFRY_NAMESPACE",
    ];
    for name in [contexts::VARIABLE].into_iter().chain(precede) {
        if sources.variable(name).is_some() {
            context.out.warn(format!("the environment variable {name} is set and precedes this choice"));
        }
    }
}

/// Creates or changes a context. `directory` is the directory of relative paths.
fn set(
    all: &mut Contexts,
    args: &ContextSetArgs,
    global: &Global,
    directory: &Path,
) -> Result<ContextRow, Failure> {
    let name = &args.name;
    let before = all.contexts.get(name).cloned();
    let url = global.url.clone().or_else(|| before.as_ref().map(|before| before.url.clone()));
    let url = url.ok_or_else(|| {
        Failure::usage(format!("context `{name}` does not exist, and a new context requires a URL"))
            .help(format!("run `belfry context set {name} --url URL`"))
    })?;
    let namespace = global.namespace.as_deref().filter(|namespace| *namespace != "*");
    let names = [("NAME", Some(name.as_str())), ("--namespace", namespace)];
    let wrong: Vec<_> = names.into_iter().flat_map(|(path, name)| wrong_name(path, name)).collect();
    if !wrong.is_empty() {
        return Err(Failure::usage("invalid context").fields(wrong));
    }
    client::Client::with_patience(&url, None, client::Timeouts::default())?;
    let token_file = global.token_file.as_deref().map(|file| absolute(file, directory)).transpose()?;
    let ca_file = global.ca_file.as_deref().map(|file| {
        let file = directory.join(file);
        crate::connect::read_authority(&file).map(|_| file)
    });
    let ca_file = ca_file.transpose()?;
    let settings = ContextSettings {
        url,
        token_file: token_file.or_else(|| before.as_ref().and_then(|before| before.token_file.clone())),
        ca_file: ca_file.or_else(|| before.as_ref().and_then(|before| before.ca_file.clone())),
        namespace: global.namespace.clone().or_else(|| before.and_then(|before| before.namespace)),
    };
    all.contexts.insert(name.clone(), settings.clone());
    if args.is_current {
        all.current = Some(name.clone());
    }
    Ok(ContextRow { in_use: all.current.as_ref() == Some(name), name: name.clone(), settings })
}

fn wrong_name(path: &str, name: Option<&str>) -> Vec<FieldError> {
    let problems = name.and_then(|name| model::validate::name(name).err()).map(|wrong| wrong.problems);
    let field = |detail| FieldError { pointer: String::new(), path: path.to_owned(), detail };
    problems.unwrap_or_default().into_iter().map(|problem| field(problem.message)).collect()
}

fn absolute(file: &Path, directory: &Path) -> Result<PathBuf, Failure> {
    if file == Path::new("-") {
        return Err(Failure::usage("a context cannot read its token from standard input")
            .help("set `--token-file` to the path of a file"));
    }
    let file = directory.join(file);
    crate::connect::read_token(&file)?;
    Ok(file)
}

/// Context as a row or in detail.
#[derive(Debug, Serialize)]
struct ContextRow {
    name: String,
    in_use: bool,
    #[serde(flatten)]
    settings: ContextSettings,
}

impl ContextRow {
    fn token_file(&self) -> Cell {
        self.settings.token_file.as_ref().map(|file| file.display().to_string()).into()
    }
}

impl Row for ContextRow {
    const COLUMNS: &'static [Column] = &[
        column("IN USE", 6).optional(1),
        column("NAME", 16),
        column("URL", 28),
        column("NAMESPACE", 12),
        column("TOKEN FILE", 30).optional(2),
    ];

    fn cells(&self, _: &OutputOptions) -> Vec<Cell> {
        vec![
            if self.in_use { Cell::new("*", Tone::Good) } else { "".into() },
            self.name.as_str().into(),
            self.settings.url.as_str().into(),
            self.settings.namespace.as_deref().into(),
            self.token_file(),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Detail for ContextRow {
    fn detail(&self, _: &OutputOptions) -> Vec<(&'static str, Cell)> {
        vec![
            ("Context", self.name.as_str().into()),
            ("In use", if self.in_use { "yes" } else { "no" }.into()),
            ("URL", self.settings.url.as_str().into()),
            ("Token file", self.token_file()),
            ("CA file", self.settings.ca_file.as_ref().map(|file| file.display().to_string()).into()),
            ("Namespace", self.settings.namespace.as_deref().unwrap_or("default").into()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_in(all: &mut Contexts, name: &str, global: Global) -> Result<ContextRow, String> {
        client::install_crypto();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "bf_admin_x\n").unwrap();
        let args = ContextSetArgs { name: name.into(), is_current: false };
        set(all, &args, &global, dir.path()).map_err(|failure| failure.render(false))
    }

    #[test]
    fn only_the_given_fields_of_a_context_are_changed() {
        let mut all = Contexts::default();
        let created = Global {
            url: Some("http://127.0.0.1:7070".into()),
            token_file: Some("token".into()),
            ..Global::default()
        };
        let row = set_in(&mut all, "lab", created).unwrap();
        assert!(row.settings.token_file.as_ref().is_some_and(|file| file.is_absolute()), "{row:?}");
        let changed = Global { namespace: Some("pay".into()), ..Global::default() };
        let expected = ContextSettings { namespace: Some("pay".into()), ..row.settings };
        assert_eq!(set_in(&mut all, "lab", changed).unwrap().settings, expected);
        assert_eq!(all.contexts["lab"], expected);
    }

    #[test]
    fn an_invalid_context_is_refused() {
        let refused = |name: &str, url: Option<&str>, token_file: Option<&str>| {
            let global = Global {
                url: url.map(str::to_owned),
                token_file: token_file.map(PathBuf::from),
                namespace: Some("a b".into()),
                ..Global::default()
            };
            let mut all = Contexts::default();
            let text = set_in(&mut all, name, global).unwrap_err();
            assert_eq!(all, Contexts::default());
            text
        };
        assert!(refused("lab", None, None).contains("requires a URL"));
        insta::assert_snapshot!(refused("a/b", Some("http://127.0.0.1"), None), @r"
        error: invalid context
          NAME: `a/b` is not a valid name: expected 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or digit
          --namespace: `a b` is not a valid name: expected 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or digit
        ");
        let with = |url: &str, token_file: &str| {
            let global =
                Global { url: Some(url.into()), token_file: Some(token_file.into()), ..Global::default() };
            set_in(&mut Contexts::default(), "lab", global).unwrap_err()
        };
        assert!(with("127.0.0.1", "token").contains("127.0.0.1"));
        assert!(with("http://127.0.0.1", "-").contains("standard input"));
        assert!(with("http://127.0.0.1", "missing").contains("cannot read the token"));
    }
}
